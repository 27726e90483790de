/* The services on libevent: a base for each worker, and events on the
 * sockets themselves, which is how memcached uses libevent. Bufferevents
 * would copy each byte twice. */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct listener {
    const struct options *options;
    struct event_base *base;
    struct event *readable, *pause_over;
};

struct connection {
    struct session session;
    struct event *readable, *writable;
    size_t written;
};

static void drop(struct connection *connection, evutil_socket_t fd)
{
    if (connection->readable != NULL)
        event_free(connection->readable);
    if (connection->writable != NULL)
        event_free(connection->writable);
    session_close(&connection->session);
    free(connection);
    close(fd);
}

enum outcome { DONE, BLOCKED, FAILED };

static enum outcome write_out(struct connection *connection, evutil_socket_t fd)
{
    size_t length;
    const unsigned char *output = session_output(&connection->session, &length);
    while (connection->written < length) {
        ssize_t count =
            send(fd, output + connection->written, length - connection->written, MSG_NOSIGNAL);
        if (count >= 0)
            connection->written += (size_t)count;
        else if (errno == EAGAIN)
            return BLOCKED;
        else if (errno != EINTR)
            return FAILED;
    }
    connection->written = 0;
    return session_written(&connection->session) ? DONE : FAILED;
}

static void on_readable(evutil_socket_t fd, short what, void *argument)
{
    (void)what;
    struct connection *connection = argument;
    size_t length;
    unsigned char *space = session_space(&connection->session, &length);
    ssize_t count = space == NULL ? 0 : recv(fd, space, length, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0 || !session_received(&connection->session, (size_t)count)) {
        drop(connection, fd);
        return;
    }
    enum outcome outcome = write_out(connection, fd);
    /* While a client does not read its answers, nothing is read from it. */
    if (outcome == BLOCKED && (event_del(connection->readable) != 0 ||
                               event_add(connection->writable, NULL) != 0))
        outcome = FAILED;
    if (outcome == FAILED)
        drop(connection, fd);
}

static void on_writable(evutil_socket_t fd, short what, void *argument)
{
    (void)what;
    struct connection *connection = argument;
    enum outcome outcome = write_out(connection, fd);
    if (outcome == DONE && (event_del(connection->writable) != 0 ||
                            event_add(connection->readable, NULL) != 0))
        outcome = FAILED;
    if (outcome == FAILED)
        drop(connection, fd);
}

static void on_connection(evutil_socket_t fd, short what, void *argument)
{
    (void)what;
    struct listener *listener = argument;
    int stream = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (stream < 0) {
        const struct timeval pause = {.tv_usec = PEER_ACCEPT_PAUSE_MS * 1000};
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        if (event_del(listener->readable) != 0 || event_add(listener->pause_over, &pause) != 0)
            die(listener->options, "cannot pause accepting", 0);
        return;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(stream);
        return;
    }
    connection->readable =
        event_new(listener->base, stream, EV_READ | EV_PERSIST, on_readable, connection);
    connection->writable =
        event_new(listener->base, stream, EV_WRITE | EV_PERSIST, on_writable, connection);
    if (!session_open(&connection->session, listener->options->service) ||
        connection->readable == NULL || connection->writable == NULL ||
        event_add(connection->readable, NULL) != 0)
        drop(connection, stream);
}

static void on_pause_over(evutil_socket_t fd, short what, void *argument)
{
    (void)fd;
    (void)what;
    struct listener *listener = argument;
    if (event_add(listener->readable, NULL) != 0)
        die(listener->options, "cannot go on accepting", 0);
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct listener listener = {.options = worker->options};
    struct event_config *config = event_config_new();
    /* No other thread uses anything of a base. */
    if (config == NULL || event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) != 0 ||
        (listener.base = event_base_new_with_config(config)) == NULL)
        die(worker->options, "cannot make an event base", 0);
    event_config_free(config);
    listener.readable = event_new(listener.base, worker->listener, EV_READ | EV_PERSIST,
                                  on_connection, &listener);
    listener.pause_over = evtimer_new(listener.base, on_pause_over, &listener);
    if (listener.readable == NULL || listener.pause_over == NULL ||
        event_add(listener.readable, NULL) != 0)
        die(worker->options, "cannot watch the listening socket", 0);
    event_base_dispatch(listener.base);
    die(worker->options, "the loop ended", 0);
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {"default", NULL};
    struct options options;
    char version[64];
    snprintf(version, sizeof version, "libevent %s", event_get_version());
    parse_options(argc, argv, "libevent", version, variants, &options);
    run_workers(&options, work);
}
