#define _GNU_SOURCE
#include "late-wake.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define MOST_TIMES 1000

/* Command line */

static __attribute__((noreturn)) void usage_error(const char *name, const char *what,
                                                  const char *value)
{
    fprintf(stderr, "%s: %s %s; see --help\n", name, what, value);
    exit(2);
}

static unsigned number(const char *name, const char *flag, const char *text)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || errno != 0 || *end != '\0' || value > 100000000)
        usage_error(name, flag, text);
    return (unsigned)value;
}

void probe_parse(int argc, char **argv, const char *name, const char *runtime_version,
                 const char *const *variants, struct probe *probe)
{
    *probe = (struct probe){.name = name, .gap_us = 100000, .timer_ms = 5000, .times = 10};
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", name, runtime_version);
        exit(0);
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("Usage: %s [--measure deferred] [--variant V] [--loop-cpu N] [--poster-cpu N]\n"
               "       [--gap-us N] [--timer-ms N] [--times N] [--version]\n",
               name);
        exit(0);
    }
    for (int i = 1; i < argc; i += 2) {
        const char *flag = argv[i], *value = argv[i + 1];
        if (value == NULL)
            usage_error(name, flag, "without a value");
        if (strcmp(flag, "--measure") == 0) {
            if (strcmp(value, "deferred") != 0)
                usage_error(name, flag, value);
        } else if (strcmp(flag, "--variant") == 0) {
            unsigned index = 0;
            while (variants[index] != NULL && strcmp(variants[index], value) != 0)
                index++;
            if (variants[index] == NULL)
                usage_error(name, flag, value);
            probe->variant = index;
        } else if (strcmp(flag, "--loop-cpu") == 0) {
            probe->loop_cpu = number(name, flag, value);
        } else if (strcmp(flag, "--poster-cpu") == 0) {
            probe->poster_cpu = number(name, flag, value);
        } else if (strcmp(flag, "--gap-us") == 0) {
            probe->gap_us = number(name, flag, value);
        } else if (strcmp(flag, "--timer-ms") == 0) {
            probe->timer_ms = number(name, flag, value);
        } else if (strcmp(flag, "--times") == 0) {
            probe->times = number(name, flag, value);
            if (probe->times == 0 || probe->times > MOST_TIMES)
                usage_error(name, flag, value);
        } else {
            usage_error(name, "unexpected argument", flag);
        }
    }
}

void probe_die(const struct probe *probe, const char *what, int error)
{
    fprintf(stderr, "%s: %s%s%s\n", probe->name, what, error ? ": " : "",
            error ? strerror(error) : "");
    exit(1);
}

int probe_idle_descriptor(const struct probe *probe)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        probe_die(probe, "socketpair", errno);
    return ends[0];
}

/* Marks */

struct mark {
    _Alignas(128) _Atomic uint64_t at; /* 0 until it ran */
    _Atomic uint64_t sleeps;
};

static struct mark first, local, second;
static atomic_bool second_is_posted;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 * MS + (uint64_t)time.tv_nsec;
}

static void set(struct mark *mark)
{
    uint64_t at = now();
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    atomic_store_explicit(&mark->sleeps, (uint64_t)usage.ru_nvcsw, memory_order_relaxed);
    atomic_store_explicit(&mark->at, at, memory_order_release);
}

void mark_first(void)
{
    set(&first);
}

void mark_local(void)
{
    set(&local);
}

void mark_second(void)
{
    set(&second);
}

void until_second(void)
{
    uint64_t end = now() + 100 * MS;
    while (!atomic_load_explicit(&second_is_posted, memory_order_acquire) && now() < end)
        ;
}

/* The thread that posts */

struct poster {
    struct probe probe;
    void (*post_first)(void *), (*post_second)(void *);
    void *context;
    pid_t loop;
    uint64_t due;
};

static void pin(const struct probe *probe, unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (cpu >= CPU_SETSIZE || sched_setaffinity(0, sizeof set, &set) != 0)
        probe_die(probe, "cannot run on its CPU", errno);
}

static void nap(uint64_t nanoseconds)
{
    struct timespec time = {(time_t)(nanoseconds / (1000 * MS)),
                            (long)(nanoseconds % (1000 * MS))};
    nanosleep(&time, NULL);
}

static bool sleeps(pid_t tid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *state = read ? strrchr(line, ')') : NULL;
    return state != NULL && state[1] == ' ' && state[2] == 'S';
}

static uint64_t wait_for(const struct poster *poster, struct mark *mark)
{
    uint64_t start = now(), at;
    while ((at = atomic_load_explicit(&mark->at, memory_order_acquire)) == 0) {
        uint64_t time = now();
        if (time > poster->due + 5000 * MS)
            probe_die(&poster->probe,
                      "something that was posted did not even run when the timer was due", 0);
        if (time > start + 10 * MS)
            nap(MS);
    }
    return at;
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void print_times(const char *name, uint64_t *times, unsigned count)
{
    qsort(times, count, sizeof *times, compare);
    unsigned p50 = (count + 1) / 2, p90 = (count * 9 + 9) / 10;
    printf("\"%s\":{\"count\":%u,\"min\":%llu,\"p50\":%llu,\"p90\":%llu,\"p99\":null,"
           "\"max\":%llu},",
           name, count, (unsigned long long)times[0], (unsigned long long)times[p50 - 1],
           (unsigned long long)times[p90 - 1], (unsigned long long)times[count - 1]);
}

static void *post(void *argument)
{
    const struct poster *poster = argument;
    const struct probe *probe = &poster->probe;
    static uint64_t of_local[MOST_TIMES], of_second[MOST_TIMES];
    uint64_t timer_left = 0, slept = 0;
    unsigned count = 0;
    pin(probe, probe->poster_cpu);
    while (count < probe->times) {
        nap(probe->gap_us * 1000ull);
        for (unsigned tries = 0; !sleeps(poster->loop); tries++) {
            if (tries == 5000)
                probe_die(probe, "the loop does not go to sleep", 0);
            nap(MS);
        }
        uint64_t time = now(), left = time < poster->due ? poster->due - time : 0;
        /* The late work must be seen to be late. */
        if (count > 0 && left < probe->timer_ms * MS / 2)
            break;
        if (count == 0)
            timer_left = left;
        atomic_store(&first.at, 0);
        atomic_store(&local.at, 0);
        atomic_store(&second.at, 0);
        atomic_store(&second_is_posted, false);
        uint64_t first_at = now();
        poster->post_first(poster->context);
        wait_for(poster, &first);
        uint64_t second_at = now();
        poster->post_second(poster->context);
        atomic_store_explicit(&second_is_posted, true, memory_order_release);
        of_local[count] = wait_for(poster, &local) - first_at;
        uint64_t ran = wait_for(poster, &second);
        of_second[count] = ran > second_at ? ran - second_at : 0;
        uint64_t before = atomic_load(&first.sleeps);
        uint64_t after_local = atomic_load(&local.sleeps) - before;
        uint64_t after_second = atomic_load(&second.sleeps) - before;
        slept = after_local > slept ? after_local : slept;
        slept = after_second > slept ? after_second : slept;
        count++;
    }
    printf("{");
    print_times("local", of_local, count);
    print_times("second", of_second, count);
    printf("\"timer_left\":%llu,\"sleeps\":%llu,\"parks\":null}\n",
           (unsigned long long)timer_left, (unsigned long long)slept);
    fflush(stdout);
    _exit(0);
}

void probe_start(const struct probe *probe, void (*post_first)(void *),
                 void (*post_second)(void *), void *context)
{
    static struct poster poster;
    poster = (struct poster){.probe = *probe,
                             .post_first = post_first,
                             .post_second = post_second,
                             .context = context,
                             .loop = (pid_t)syscall(SYS_gettid),
                             .due = now() + probe->timer_ms * MS};
    pin(probe, probe->loop_cpu);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, post, &poster);
    if (error != 0)
        probe_die(probe, "cannot start a thread", error);
}
