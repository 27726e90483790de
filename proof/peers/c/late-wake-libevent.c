/* The architecture of the public case, on libevent. Posts from other threads
 * go into a list and ring an eventfd. The event of the eventfd takes the
 * list and runs it. What a post queues on the loop itself is a loop
 * callback. The application runs the loop callbacks each time when
 * event_base_loop(EVLOOP_ONCE) returns. One of these callbacks arms the list
 * again, so that the next post rings.
 *
 * `normal` registers the eventfd's event like any other. `internal` marks it
 * EVLIST_INTERNAL, as that application did, so that this event alone would
 * not keep a loop alive. But libevent also does not count an internal event
 * when it decides whether a one-shot wait is over. Neither variant shows a
 * fault of libevent alone. */
#include "late-wake.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST = 64 };

typedef void task(void);

struct list {
    task *tasks[MOST];
    unsigned count;
};

static struct probe probe;

/* Posts. Any thread writes them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list posts;
static bool armed = true;
static int bell;

/* Loop callbacks. Only the loop's thread uses them. */
static struct list callbacks;

static void push(struct list *list, task *task)
{
    if (list->count == MOST)
        probe_die(&probe, "a list is full", 0);
    list->tasks[list->count++] = task;
}

static void send_to_loop(task *task)
{
    pthread_mutex_lock(&lock);
    push(&posts, task);
    bool ring = armed;
    armed = false;
    pthread_mutex_unlock(&lock);
    uint64_t one = 1;
    if (ring && write(bell, &one, sizeof one) != sizeof one)
        probe_die(&probe, "write", errno);
}

static void ring_again(void)
{
    uint64_t one = 1;
    if (write(bell, &one, sizeof one) != sizeof one)
        probe_die(&probe, "write", errno);
}

/* A loop callback. From now on a post rings. What came in the meantime rings
 * now. */
static void arm(void)
{
    pthread_mutex_lock(&lock);
    bool empty = posts.count == 0;
    armed = empty;
    pthread_mutex_unlock(&lock);
    if (!empty)
        ring_again();
}

static void on_bell(evutil_socket_t fd, short what, void *argument)
{
    (void)what;
    (void)argument;
    uint64_t rings;
    if (read(fd, &rings, sizeof rings) != sizeof rings && errno != EAGAIN)
        probe_die(&probe, "read", errno);
    pthread_mutex_lock(&lock);
    struct list taken = posts;
    posts.count = 0;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < taken.count; i++)
        taken.tasks[i]();
    push(&callbacks, arm);
}

static void run_callbacks(void)
{
    struct list taken = callbacks;
    callbacks.count = 0;
    for (unsigned i = 0; i < taken.count; i++)
        taken.tasks[i]();
}

static void first(void)
{
    mark_first();
    push(&callbacks, mark_local);
    until_second();
}

static void post_first(void *context)
{
    (void)context;
    send_to_loop(first);
}

static void post_second(void *context)
{
    (void)context;
    send_to_loop(mark_second);
}

static void nothing(evutil_socket_t fd, short what, void *argument)
{
    (void)fd;
    (void)what;
    (void)argument;
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {"normal", "internal", NULL};
    probe_parse(argc, argv, "late-wake-libevent", "libevent " LIBEVENT_VERSION, variants, &probe);
    bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bell < 0)
        probe_die(&probe, "eventfd", errno);
    struct event_config *config = event_config_new();
    if (config == NULL)
        probe_die(&probe, "event_config_new", 0);
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    struct event_base *base = event_base_new_with_config(config);
    struct event of_bell;
    if (base == NULL || event_assign(&of_bell, base, bell, EV_READ | EV_PERSIST, on_bell, NULL) != 0)
        probe_die(&probe, "no event base", 0);
    if (probe.variant == 1)
        of_bell.ev_evcallback.evcb_flags |= EVLIST_INTERNAL;
    struct event *idle =
        event_new(base, probe_idle_descriptor(&probe), EV_READ | EV_PERSIST, nothing, NULL);
    struct event *timer = event_new(base, -1, 0, nothing, NULL);
    struct timeval after = {probe.timer_ms / 1000, probe.timer_ms % 1000 * 1000};
    if (idle == NULL || timer == NULL || event_add(&of_bell, NULL) != 0 ||
        event_add(idle, NULL) != 0 || event_add(timer, &after) != 0)
        probe_die(&probe, "an event cannot be added", 0);
    probe_start(&probe, post_first, post_second, NULL);
    for (;;) {
        if (event_base_loop(base, callbacks.count > 0 ? EVLOOP_ONCE | EVLOOP_NONBLOCK
                                                      : EVLOOP_ONCE) < 0)
            probe_die(&probe, "event_base_loop", 0);
        run_callbacks();
    }
}
