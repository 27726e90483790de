#define _GNU_SOURCE
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Command line */

static __attribute__((noreturn)) void usage_error(const struct options *options, const char *what,
                                                  const char *value)
{
    fprintf(stderr, "%s: %s%s%s; see --help\n", options->name, what, *value ? ": " : "", value);
    exit(2);
}

static bool parse_unix(const char *path, struct options *options)
{
    struct sockaddr_un *unix_address = (struct sockaddr_un *)&options->address;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof unix_address->sun_path)
        return false;
    unix_address->sun_family = AF_UNIX;
    memcpy(unix_address->sun_path, path, length + 1);
    options->address_length = sizeof *unix_address;
    return true;
}

static bool parse_number(const char *text, unsigned long max, unsigned long *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0' && *number <= max;
}

static bool parse_address(const char *text, struct options *options)
{
    char host[INET6_ADDRSTRLEN];
    unsigned long port;
    memset(&options->address, 0, sizeof options->address);
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, options);
    const char *colon = strrchr(text, ':');
    if (colon == NULL || !parse_number(colon + 1, 65535, &port))
        return false;
    size_t length = (size_t)(colon - text);
    bool brackets = length >= 2 && text[0] == '[' && colon[-1] == ']';
    const char *start = brackets ? text + 1 : text;
    length -= brackets ? 2 : 0;
    if (length >= sizeof host)
        return false;
    memcpy(host, start, length);
    host[length] = '\0';
    if (brackets) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&options->address;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((unsigned short)port);
        options->address_length = sizeof *in6;
        return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)&options->address;
    in->sin_family = AF_INET;
    in->sin_port = htons((unsigned short)port);
    options->address_length = sizeof *in;
    return inet_pton(AF_INET, host, &in->sin_addr) == 1;
}

static __attribute__((noreturn)) void help(const struct options *options,
                                           const char *const *variants)
{
    printf("Usage: %s [--listen IP:PORT|unix:PATH] [--workers N] [--service echo|http]\n"
           "       [--variant ",
           options->name);
    for (unsigned index = 0; variants[index] != NULL; index++)
        printf("%s%s", index ? "|" : "", variants[index]);
    printf("] [--version]\n");
    exit(0);
}

void parse_options(int argc, char **argv, const char *name, const char *runtime_version,
                   const char *const *variants, struct options *options)
{
    *options = (struct options){.name = name, .workers = 1, .service = SERVICE_ECHO};
    parse_address("127.0.0.1:7001", options);
    for (int index = 1; index < argc; index++) {
        char *flag = argv[index], *value = strchr(flag, '=');
        if (strcmp(flag, "--version") == 0 || strcmp(flag, "-V") == 0) {
            printf("%s %s\n", name, runtime_version);
            exit(0);
        }
        if (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0)
            help(options, variants);
        if (strncmp(flag, "--", 2) != 0)
            usage_error(options, "unexpected argument", flag);
        if (value != NULL)
            *value++ = '\0';
        bool known = strcmp(flag, "--listen") == 0 || strcmp(flag, "--workers") == 0 ||
                     strcmp(flag, "--service") == 0 || strcmp(flag, "--variant") == 0;
        if (!known)
            usage_error(options, "unknown flag", flag);
        if (value == NULL && ++index < argc)
            value = argv[index];
        if (value == NULL)
            usage_error(options, "a value is missing", flag);
        if (strcmp(flag, "--listen") == 0) {
            if (!parse_address(value, options))
                usage_error(options, "neither IP:PORT nor unix:PATH", value);
        } else if (strcmp(flag, "--workers") == 0) {
            unsigned long workers;
            if (!parse_number(value, 1024, &workers) || workers == 0)
                usage_error(options, "--workers takes a number from 1 to 1024", value);
            options->workers = (unsigned)workers;
        } else if (strcmp(flag, "--service") == 0) {
            if (strcmp(value, "echo") != 0 && strcmp(value, "http") != 0)
                usage_error(options, "--service takes echo or http", value);
            options->service = strcmp(value, "http") == 0 ? SERVICE_HTTP : SERVICE_ECHO;
        } else {
            for (options->variant = 0; variants[options->variant] != NULL; options->variant++)
                if (strcmp(value, variants[options->variant]) == 0)
                    break;
            if (variants[options->variant] == NULL)
                usage_error(options, "no such --variant", value);
        }
    }
}

/* Listening */

static void print_address(const struct options *options, FILE *to)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (options->address.ss_family == AF_UNIX) {
        fprintf(to, "unix:%s", ((const struct sockaddr_un *)&options->address)->sun_path);
    } else if (options->address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&options->address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        fprintf(to, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&options->address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        fprintf(to, "%s:%u", host, ntohs(in->sin_port));
    }
}

void die(const struct options *options, const char *what, int error)
{
    fprintf(stderr, "%s: %s%s%s\n", options->name, what, error ? ": " : "",
            error ? strerror(error) : "");
    exit(1);
}

static __attribute__((noreturn)) void cannot_listen(const struct options *options, int error)
{
    fprintf(stderr, "%s: cannot listen on ", options->name);
    print_address(options, stderr);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(1);
}

bool is_unix(const struct options *options)
{
    return options->address.ss_family == AF_UNIX;
}

/* Removes the socket file of a server that is gone. */
static void remove_stale(const struct options *options)
{
    const char *path = ((const struct sockaddr_un *)&options->address)->sun_path;
    struct stat status;
    if (lstat(path, &status) != 0 || !S_ISSOCK(status.st_mode))
        return; /* If anything is wrong, bind reports it. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        cannot_listen(options, errno);
    if (connect(fd, (const struct sockaddr *)&options->address, options->address_length) == 0)
        cannot_listen(options, EADDRINUSE);
    if (errno != ECONNREFUSED || unlink(path) != 0)
        cannot_listen(options, errno);
    close(fd);
}

static int listen_once(struct options *options, bool reuse_port)
{
    const int one = 1;
    if (is_unix(options))
        remove_stale(options);
    int fd = socket(options->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        cannot_listen(options, errno);
    /* On Linux, accepted sockets inherit TCP_NODELAY. */
    if (!is_unix(options) &&
        (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
         (reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) != 0) ||
         setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0))
        cannot_listen(options, errno);
    if (bind(fd, (const struct sockaddr *)&options->address, options->address_length) != 0 ||
        listen(fd, PEER_BACKLOG) != 0)
        cannot_listen(options, errno);
    if (!is_unix(options)) {
        socklen_t length = sizeof options->address;
        if (getsockname(fd, (struct sockaddr *)&options->address, &length) != 0)
            cannot_listen(options, errno);
    }
    return fd;
}

int *open_listeners(struct options *options, unsigned count)
{
    int *fds = calloc(count, sizeof *fds);
    if (fds == NULL)
        die(options, "no memory", 0);
    /* A single socket is bound without SO_REUSEPORT. Several sockets are
     * bound only after one without it could be bound. Otherwise a server
     * that is left over from an earlier run would silently take a part of
     * the connections. */
    fds[0] = listen_once(options, false);
    if (count > 1 && !is_unix(options)) {
        close(fds[0]);
        fds[0] = listen_once(options, true);
    }
    for (unsigned index = 1; index < count; index++) {
        fds[index] = is_unix(options) ? dup(fds[0]) : listen_once(options, true);
        if (fds[index] < 0)
            cannot_listen(options, errno);
    }
    return fds;
}

void announce(const struct options *options)
{
    fputs("listening on ", stderr);
    print_address(options, stderr);
    fputc('\n', stderr);
}

void run_workers(struct options *options, void *(*work)(void *))
{
    int *listeners = open_listeners(options, options->workers);
    struct worker *workers = calloc(options->workers, sizeof *workers);
    pthread_t thread;
    if (workers == NULL)
        die(options, "no memory", 0);
    for (unsigned index = 0; index < options->workers; index++) {
        workers[index] = (struct worker){.options = options, .listener = listeners[index]};
        int error = pthread_create(&thread, NULL, work, &workers[index]);
        if (error != 0)
            die(options, "cannot start a thread", error);
    }
    announce(options);
    pthread_join(thread, NULL);
    die(options, "a worker ended", 0);
}

/* Echo: a 4-byte big-endian length, then that many bytes of payload. */

#define HEADER 4u
#define MAX_PAYLOAD (16u << 20)
#define INITIAL_CAPACITY (16u << 10)

static void answer_echo(struct session *session)
{
    const unsigned char *in = session->in;
    while (session->received - session->end >= HEADER) {
        const unsigned char *at = in + session->end;
        size_t payload =
            (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | (size_t)at[3];
        if (payload > MAX_PAYLOAD) {
            session->close = true;
            return;
        }
        if (session->received - session->end - HEADER < payload)
            return;
        session->end += HEADER + payload;
    }
}

/* Just enough of HTTP/1.1: the ends of requests are found correctly,
 * including bodies. The only resource is `GET /`. */

#define MAX_HEAD (64u << 10)
#define MAX_BODY (1u << 20)
#define MAX_FIELDS 64

struct text {
    const char *at;
    size_t length;
};

static struct text trim(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return (struct text){at, (size_t)(end - at)};
}

static bool equals(struct text text, const char *other)
{
    return text.length == strlen(other) && strncasecmp(text.at, other, text.length) == 0;
}

static bool names_close(struct text value)
{
    const char *at = value.at, *end = value.at + value.length;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if (equals(trim(at, stop), "close"))
            return true;
        at = stop + 1;
    }
    return false;
}

struct reply {
    const char *status;
    size_t length;
    bool close, head_only, hello;
};

static struct reply refusal(const char *status)
{
    return (struct reply){.status = status, .close = true};
}

static bool put_reply(struct session *session, const struct reply *reply)
{
    const size_t most = 256;
    if (session->out_capacity - session->out_length < most) {
        size_t capacity = session->out_capacity * 2 + most;
        unsigned char *out = realloc(session->out, capacity);
        if (out == NULL)
            return false;
        session->out = out;
        session->out_capacity = capacity;
    }
    unsigned char *at = session->out + session->out_length;
    if (reply->hello && !reply->close && !reply->head_only) {
        static const char hello[] =
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 6\r\n\r\nhello\n";
        memcpy(at, hello, sizeof hello - 1);
        session->out_length += sizeof hello - 1;
        return true;
    }
    int length = snprintf(
        (char *)at, most, "HTTP/1.1 %s\r\n%s%s%s%s", reply->status,
        strncmp(reply->status, "405", 3) == 0 ? "allow: GET, HEAD\r\n" : "",
        reply->close ? "connection: close\r\n" : "",
        reply->hello ? "content-type: text/plain\r\ncontent-length: 6\r\n\r\n"
                     : "content-length: 0\r\n\r\n",
        reply->hello && !reply->head_only ? "hello\n" : "");
    session->out_length += (size_t)length;
    return true;
}

/* Reads the length of a body. Returns false if it is not a number, or not
 * the length that was given before. */
static bool read_length(struct text value, bool *seen, size_t *body)
{
    size_t length = 0;
    if (value.length == 0)
        return false;
    for (size_t index = 0; index < value.length; index++) {
        unsigned char digit = (unsigned char)value.at[index];
        if (digit < '0' || digit > '9' || length > MAX_BODY * 16u)
            return false;
        length = length * 10 + (digit - '0');
    }
    if (*seen && *body != length)
        return false;
    *seen = true;
    *body = length;
    return true;
}

/* Finds the reply to the request that the bytes begin with. Returns false if
 * the request is incomplete. */
static bool read_request(const char *bytes, size_t available, struct reply *reply)
{
    const char *blank = memmem(bytes, available, "\r\n\r\n", 4);
    if (blank == NULL ? available > MAX_HEAD : (size_t)(blank - bytes) + 4 > MAX_HEAD) {
        *reply = refusal("431 Request Header Fields Too Large");
        return true;
    }
    if (blank == NULL)
        return false;
    const char *end = blank + 2; /* The end of the last line, including CR LF. */
    const char *line = memchr(bytes, '\n', (size_t)(end - bytes));
    const char *space = memchr(bytes, ' ', (size_t)(line - bytes));
    const char *last = memrchr(bytes, ' ', (size_t)(line - bytes));
    *reply = refusal("400 Bad Request");
    if (space == NULL || space == bytes || last <= space + 1)
        return true;
    struct text method = {bytes, (size_t)(space - bytes)};
    struct text path = {space + 1, (size_t)(last - space - 1)};
    struct text protocol = trim(last, line);
    if (!equals(protocol, "HTTP/1.1") && !equals(protocol, "HTTP/1.0"))
        return true;
    bool close = equals(protocol, "HTTP/1.0"), seen = false;
    size_t body = 0, fields = 0;
    for (const char *at = line + 1; at < end; at = line + 1) {
        line = memchr(at, '\n', (size_t)(end - at));
        const char *colon = memchr(at, ':', (size_t)(line - at));
        if (colon == NULL || colon == at)
            return true;
        if (++fields > MAX_FIELDS) {
            *reply = refusal("431 Request Header Fields Too Large");
            return true;
        }
        struct text name = {at, (size_t)(colon - at)}, value = trim(colon + 1, line);
        if (equals(name, "content-length")) {
            if (!read_length(value, &seen, &body))
                return true;
        } else if (equals(name, "transfer-encoding")) {
            *reply = refusal("501 Not Implemented");
            return true;
        } else if (equals(name, "connection")) {
            close = close || names_close(value);
        }
    }
    if (body > MAX_BODY) {
        *reply = refusal("413 Content Too Large");
        return true;
    }
    size_t length = (size_t)(blank - bytes) + 4 + body;
    if (available < length)
        return false;
    bool head = method.length == 4 && memcmp(method.at, "HEAD", 4) == 0;
    bool get = method.length == 3 && memcmp(method.at, "GET", 3) == 0;
    bool root = path.length == 1 && path.at[0] == '/';
    *reply = (struct reply){.length = length, .close = close, .head_only = head};
    reply->hello = root && (get || head);
    reply->status = reply->hello ? "200 OK" : root ? "405 Method Not Allowed" : "404 Not Found";
    return true;
}

static bool answer_http(struct session *session)
{
    struct reply reply;
    while (session->end < session->received && !session->close) {
        const char *at = (const char *)session->in + session->end;
        if (!read_request(at, session->received - session->end, &reply))
            break;
        if (!put_reply(session, &reply))
            return false;
        session->end += reply.length;
        session->close = reply.close;
    }
    return true;
}

/* Sessions */

bool session_open(struct session *session, enum service service)
{
    *session = (struct session){.service = service, .in_capacity = INITIAL_CAPACITY};
    session->in = malloc(INITIAL_CAPACITY);
    return session->in != NULL;
}

void session_close(struct session *session)
{
    free(session->in);
    free(session->out);
}

unsigned char *session_space(struct session *session, size_t *length)
{
    /* The buffer doubles only when it is full of bytes that have arrived. So
     * a client that merely announces a large frame costs no memory. */
    if (session->received == session->in_capacity) {
        unsigned char *in = realloc(session->in, session->in_capacity * 2);
        if (in == NULL)
            return NULL;
        session->in = in;
        session->in_capacity *= 2;
    }
    *length = session->in_capacity - session->received;
    return session->in + session->received;
}

bool session_received(struct session *session, size_t count)
{
    session->received += count;
    if (session->service == SERVICE_HTTP)
        return answer_http(session);
    answer_echo(session);
    return true;
}

const unsigned char *session_output(const struct session *session, size_t *length)
{
    *length = session->service == SERVICE_HTTP ? session->out_length : session->end;
    return session->service == SERVICE_HTTP ? session->out : session->in;
}

bool session_written(struct session *session)
{
    session->received -= session->end;
    memmove(session->in, session->in + session->end, session->received);
    session->end = 0;
    session->out_length = 0;
    return !session->close;
}
