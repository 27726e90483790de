/* What the C and C++ probes of the experiment late-wake share: the flags,
 * the thread that posts, the marks that the loop leaves, and the line of
 * JSON. late-wake/src/deferred.rs does the same for the Rust probes. The
 * loop sleeps with an idle descriptor and a timer that is far away. Post #1
 * wakes it and queues work on the loop itself. While the handler of post #1
 * still runs, post #2 is sent. */
#ifndef LATE_WAKE_H
#define LATE_WAKE_H

#ifdef __cplusplus
extern "C" {
#endif

struct probe {
    const char *name;
    /* An index into the variants given to probe_parse. */
    unsigned variant;
    unsigned loop_cpu, poster_cpu;
    unsigned gap_us, timer_ms, times;
};

/* Reads the command line. The list of variants ends with NULL, and its first
 * variant is the default. Anything wrong ends the program with a message. */
void probe_parse(int argc, char **argv, const char *name, const char *runtime_version,
                 const char *const *variants, struct probe *probe);

/* Ends the program. `error` is an errno or 0. */
__attribute__((noreturn)) void probe_die(const struct probe *probe, const char *what, int error);

/* Returns one end of a pair of sockets on which nothing ever arrives. */
int probe_idle_descriptor(const struct probe *probe);

/* Starts the thread that posts, and pins the calling thread, which is the
 * loop's and has just set its timer. When everything is measured, the new
 * thread prints the line and ends the process. Post #1 has to call
 * mark_first, then queue work that calls mark_local, and then call
 * until_second. Post #2 has to call mark_second. */
void probe_start(const struct probe *probe, void (*post_first)(void *),
                 void (*post_second)(void *), void *context);

void mark_first(void);
void mark_local(void);
void mark_second(void);
void until_second(void);

#ifdef __cplusplus
}
#endif

#endif
