/* The services on libuv: a loop for each worker. */
#include "peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

union socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct connection {
    union socket socket;
    uv_write_t write;
    struct session session;
};

static int init(uv_loop_t *loop, const struct options *options, union socket *socket)
{
    return is_unix(options) ? uv_pipe_init(loop, &socket->pipe, 0)
                            : uv_tcp_init(loop, &socket->tcp);
}

static void on_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    session_close(&connection->session);
    free(connection);
}

static void drop(struct connection *connection)
{
    if (!uv_is_closing(&connection->socket.handle))
        uv_close(&connection->socket.handle, on_closed);
}

static void on_space(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct connection *connection = handle->data;
    buffer->base = (char *)session_space(&connection->session, &buffer->len);
    if (buffer->base == NULL)
        buffer->len = 0; /* Reading then fails with UV_ENOBUFS. */
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer);

static void on_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;
    if (status != 0 || !session_written(&connection->session) ||
        uv_read_start(&connection->socket.stream, on_space, on_read) != 0)
        drop(connection);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)buffer;
    struct connection *connection = stream->data;
    if (count == 0)
        return;
    if (count < 0 || !session_received(&connection->session, (size_t)count)) {
        drop(connection);
        return;
    }
    size_t length;
    unsigned char *output = (unsigned char *)session_output(&connection->session, &length);
    if (length > 0) {
        uv_buf_t rest = uv_buf_init((char *)output, (unsigned)length);
        int written = uv_try_write(stream, &rest, 1);
        if (written < 0 && written != UV_EAGAIN) {
            drop(connection);
            return;
        }
        size_t done = written < 0 ? 0 : (size_t)written;
        if (done < length) {
            /* While a client does not read its answers, nothing is read from
             * it. */
            rest = uv_buf_init((char *)output + done, (unsigned)(length - done));
            uv_read_stop(stream);
            connection->write.data = connection;
            if (uv_write(&connection->write, stream, &rest, 1, on_written) != 0)
                drop(connection);
            return;
        }
    }
    if (!session_written(&connection->session))
        drop(connection);
}

static void on_connection(uv_stream_t *listener, int status)
{
    /* If no descriptor is left, libuv itself accepts and closes the
     * connection. It has a descriptor in reserve for that. */
    if (status != 0)
        return;
    const struct options *options = listener->data;
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || !session_open(&connection->session, options->service))
        die(options, "no memory", 0);
    int error = init(listener->loop, options, &connection->socket);
    if (error != 0)
        die(options, uv_strerror(error), 0);
    connection->socket.handle.data = connection;
    if (uv_accept(listener, &connection->socket.stream) != 0 ||
        uv_read_start(&connection->socket.stream, on_space, on_read) != 0)
        drop(connection);
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    uv_loop_t loop;
    union socket listener;
    int error = uv_loop_init(&loop);
    if (error == 0)
        error = init(&loop, worker->options, &listener);
    if (error == 0)
        error = is_unix(worker->options) ? uv_pipe_open(&listener.pipe, worker->listener)
                                         : uv_tcp_open(&listener.tcp, worker->listener);
    listener.handle.data = (void *)worker->options;
    if (error == 0)
        error = uv_listen(&listener.stream, PEER_BACKLOG, on_connection);
    if (error != 0)
        die(worker->options, uv_strerror(error), 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    die(worker->options, "the loop ended", 0);
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {"default", NULL};
    struct options options;
    char version[64];
    snprintf(version, sizeof version, "libuv %s", uv_version_string());
    parse_options(argc, argv, "libuv", version, variants, &options);
    /* libuv leaves this to the program: without it, a write to a client that
     * is gone would end the process. */
    signal(SIGPIPE, SIG_IGN);
    run_workers(&options, work);
}
