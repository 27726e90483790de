/* libuv: posts go into a list and call uv_async_send. What a post queues on
 * the loop itself is an idle handle. It runs in the next iteration of the
 * loop, and keeps the loop from sleeping until then. */
#include "late-wake.h"

#include <stdlib.h>
#include <uv.h>

enum { MOST = 64 };

typedef void task(void);

static struct probe probe;
static uv_mutex_t lock;
static task *posts[MOST];
static unsigned count;
static uv_async_t bell;
static uv_idle_t deferred;

static void send_to_loop(task *task)
{
    uv_mutex_lock(&lock);
    if (count == MOST)
        probe_die(&probe, "the list is full", 0);
    posts[count++] = task;
    uv_mutex_unlock(&lock);
    if (uv_async_send(&bell) != 0)
        probe_die(&probe, "uv_async_send", 0);
}

static void on_bell(uv_async_t *async)
{
    (void)async;
    task *taken[MOST];
    uv_mutex_lock(&lock);
    unsigned taken_count = count;
    for (unsigned i = 0; i < count; i++)
        taken[i] = posts[i];
    count = 0;
    uv_mutex_unlock(&lock);
    for (unsigned i = 0; i < taken_count; i++)
        taken[i]();
}

static void on_idle(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    mark_local();
}

static void first(void)
{
    mark_first();
    uv_idle_start(&deferred, on_idle);
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

static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    (void)status;
    (void)events;
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {"default", NULL};
    char version[64];
    snprintf(version, sizeof version, "libuv %s", uv_version_string());
    probe_parse(argc, argv, "late-wake-libuv", version, variants, &probe);
    uv_loop_t *loop = uv_default_loop();
    uv_timer_t timer;
    uv_poll_t poll;
    if (loop == NULL || uv_mutex_init(&lock) != 0 || uv_async_init(loop, &bell, on_bell) != 0 ||
        uv_idle_init(loop, &deferred) != 0 || uv_timer_init(loop, &timer) != 0 ||
        uv_timer_start(&timer, on_timer, probe.timer_ms, 0) != 0 ||
        uv_poll_init(loop, &poll, probe_idle_descriptor(&probe)) != 0 ||
        uv_poll_start(&poll, UV_READABLE, on_poll) != 0)
        probe_die(&probe, "the loop cannot be set up", 0);
    probe_start(&probe, post_first, post_second, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    probe_die(&probe, "the loop ended before all was measured", 0);
}
