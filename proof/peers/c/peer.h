/* What the peers in C and C++ share: flags, listening sockets and one
 * connection's bytes. The same as peer-common does for those in Rust. */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Connections that may wait to be accepted; the kernel's own limit applies. */
#define PEER_BACKLOG 4096

/* How long to wait after an accept failed: there may be no descriptor left. */
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

/* Reads the command line. The first of the variants, which end with NULL, is
 * the default. Anything wrong ends the program with a message. */
void parse_options(int argc, char **argv, const char *name, const char *runtime_version,
                   const char *const *variants, struct options *options);

/* Ends the program; `error` is an errno or 0. */
__attribute__((noreturn)) void die(const struct options *options, const char *what, int error);

bool is_unix(const struct options *options);

/* `count` listening sockets, which do not block, for the one address: with TCP
 * each has its own queue by SO_REUSEPORT, in the local domain they are one. */
int *open_listeners(struct options *options, unsigned count);

/* Says where the peer listens, now that it does. */
void announce(const struct options *options);

/* What each worker is given. */
struct worker {
    const struct options *options;
    int listener;
};

/* Runs `work` on a thread for each worker, with a listener each. */
void run_workers(struct options *options, void *(*work)(void *));

/* One connection without its socket: bytes in, bytes out. */
struct session {
    enum service service;
    bool close;
    unsigned char *in, *out;
    size_t in_capacity, received;
    size_t out_capacity, out_length;
    /* How many of the bytes received are dealt with. */
    size_t end;
};

/* False if there is no memory. */
bool session_open(struct session *session, enum service service);
void session_close(struct session *session);

/* The free space to read into, never empty; NULL if there is no memory. */
unsigned char *session_space(struct session *session, size_t *length);

/* Accounts for `count` bytes read and prepares the answer to all that is
 * complete by now. False if there is no memory. */
bool session_received(struct session *session, size_t count);

/* What is to be written; may be empty. */
const unsigned char *session_output(const struct session *session, size_t *length);

/* Forgets what was answered. False if the connection is to be closed. */
bool session_written(struct session *session);

#ifdef __cplusplus
}
#endif

#endif
