/* What the C and C++ peers share: flags, listening sockets and the bytes of
 * one connection. peer-common does the same for the Rust peers. */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many connections may wait to be accepted. The kernel has its own limit
 * too. */
#define PEER_BACKLOG 4096

/* How long to wait after a failed accept: there may be no descriptor left. */
#define PEER_ACCEPT_PAUSE_MS 5

enum service { SERVICE_ECHO, SERVICE_HTTP };

struct options {
    const char *name;
    struct sockaddr_storage address;
    socklen_t address_length;
    unsigned workers;
    enum service service;
    /* An index into the variants given to parse_options. */
    unsigned variant;
};

/* Reads the command line. The list of variants ends with NULL, and its first
 * variant is the default. Anything wrong ends the program with a message. */
void parse_options(int argc, char **argv, const char *name, const char *runtime_version,
                   const char *const *variants, struct options *options);

/* Ends the program. `error` is an errno or 0. */
__attribute__((noreturn)) void die(const struct options *options, const char *what, int error);

bool is_unix(const struct options *options);

/* Returns `count` listening sockets on the one address. They do not block.
 * With TCP each has its own queue (SO_REUSEPORT). Unix sockets share one
 * queue. */
int *open_listeners(struct options *options, unsigned count);

/* Prints where the peer listens. To be called when it does. */
void announce(const struct options *options);

/* What each worker gets. */
struct worker {
    const struct options *options;
    int listener;
};

/* Runs `work` on a thread for each worker. Each has its own listener. */
void run_workers(struct options *options, void *(*work)(void *));

/* One connection without its socket: bytes in, bytes out. */
struct session {
    enum service service;
    bool close;
    unsigned char *in, *out;
    size_t in_capacity, received;
    size_t out_capacity, out_length;
    /* How many of the received bytes are dealt with. */
    size_t end;
};

/* Returns false if there is no memory. */
bool session_open(struct session *session, enum service service);
void session_close(struct session *session);

/* Returns the free space to read into, which is never empty, or NULL if
 * there is no memory. */
unsigned char *session_space(struct session *session, size_t *length);

/* Accounts for `count` bytes that were read, and prepares the answers to
 * everything that is complete by now. Returns false if there is no memory. */
bool session_received(struct session *session, size_t count);

/* Returns what has to be written. It may be empty. */
const unsigned char *session_output(const struct session *session, size_t *length);

/* Forgets what was answered. Returns false if the connection has to be
 * closed. */
bool session_written(struct session *session);

#ifdef __cplusplus
}
#endif

#endif
