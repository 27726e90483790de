/* What the probes of the experiment late-wake in C and C++ share: the flags, the
 * thread that posts, the marks that the loop leaves, and the line of JSON. The
 * same as late-wake/src/deferred.rs does for those in Rust: the loop sleeps with
 * an idle descriptor and a timer far away; post #1 wakes it and queues work on
 * the loop itself; while its handler still runs, post #2 is sent. */
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

/* Reads the command line. The first of the variants, which end with NULL, is the
 * default. Anything wrong ends the program with a message. */
void probe_parse(int argc, char **argv, const char *name, const char *runtime_version,
                 const char *const *variants, struct probe *probe);

/* Ends the program; `error` is an errno or 0. */
__attribute__((noreturn)) void probe_die(const struct probe *probe, const char *what, int error);

/* One end of a pair of sockets on which nothing ever arrives. */
int probe_idle_descriptor(const struct probe *probe);

/* Starts the thread that posts, and pins the calling one, which is the loop's;
 * its timer was set just now. When all is measured, the thread prints the line
 * and ends the process. Post #1 has to call mark_first, to queue work that calls
 * mark_local, and then to call until_second; post #2 has to call mark_second. */
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
