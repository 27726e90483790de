// The services on Asio, with Boost or without.
#include "peer.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef ASIO_STANDALONE
#include <asio.hpp>
using error_code = asio::error_code;
#define PEER_UNSAFE_HINT ASIO_CONCURRENCY_HINT_UNSAFE
#define PEER_ASIO_VERSION ASIO_VERSION
#define PEER_ASIO_NAME "Asio "
#else
#include <boost/asio.hpp>
namespace asio = boost::asio;
using error_code = boost::system::error_code;
#define PEER_UNSAFE_HINT BOOST_ASIO_CONCURRENCY_HINT_UNSAFE
#define PEER_ASIO_VERSION BOOST_ASIO_VERSION
#define PEER_ASIO_NAME "Boost.Asio "
#endif

namespace {

// The order of `variants` in main.
enum Variant : unsigned { THREADS, CONTEXTS, POLL };

template <typename Protocol>
class Connection : public std::enable_shared_from_this<Connection<Protocol>> {
public:
    using Socket = typename Protocol::socket;

    explicit Connection(Socket socket) : socket_(std::move(socket)) {}
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    ~Connection() { session_close(&session_); }

    void start(service service)
    {
        if (session_open(&session_, service))
            read(this->shared_from_this());
    }

private:
    using Self = std::shared_ptr<Connection>;

    // There is one operation at a time, so no strand is needed.
    void read(Self self)
    {
        std::size_t length;
        unsigned char *space = session_space(&session_, &length);
        if (space == nullptr)
            return;
        socket_.async_read_some(
            asio::buffer(space, length),
            [self = std::move(self)](const error_code &error, std::size_t count) mutable {
                Connection &connection = *self;
                if (!error && session_received(&connection.session_, count))
                    connection.write(std::move(self));
            });
    }

    void write(Self self)
    {
        std::size_t length;
        const unsigned char *output = session_output(&session_, &length);
        if (length == 0) {
            go_on(std::move(self));
            return;
        }
        asio::async_write(
            socket_, asio::buffer(output, length),
            [self = std::move(self)](const error_code &error, std::size_t) mutable {
                Connection &connection = *self;
                if (!error)
                    connection.go_on(std::move(self));
            });
    }

    void go_on(Self self)
    {
        if (session_written(&session_))
            read(std::move(self));
    }

    Socket socket_;
    session session_{};
};

template <typename Protocol> class Listener {
public:
    Listener(asio::io_context &context, const Protocol &protocol, const options &options, int fd)
        : options_(options), acceptor_(context, protocol, fd), pause_(context)
    {
    }

    void accept()
    {
        acceptor_.async_accept([this](const error_code &error, typename Protocol::socket socket) {
            if (!error) {
                std::make_shared<Connection<Protocol>>(std::move(socket))->start(options_.service);
            } else if (error != asio::error::connection_aborted) {
                // There may be no descriptor left.
                pause_.expires_after(std::chrono::milliseconds(PEER_ACCEPT_PAUSE_MS));
                pause_.async_wait([this](const error_code &) { accept(); });
                return;
            }
            accept();
        });
    }

private:
    const options &options_;
    typename Protocol::acceptor acceptor_;
    asio::steady_timer pause_;
};

void run(asio::io_context &context, Variant variant)
{
    if (variant != POLL)
        context.run();
    else
        while (!context.stopped())
            context.poll();
}

template <typename Protocol> void serve(options &options, const Protocol &protocol)
{
    const auto variant = static_cast<Variant>(options.variant);
    const bool one_context = variant == THREADS;
    const unsigned contexts = one_context ? 1 : options.workers;
    // A context that only one thread uses needs no lock.
    const int hint = one_context ? static_cast<int>(options.workers) : PEER_UNSAFE_HINT;
    const int *fds = open_listeners(&options, contexts);
    std::vector<std::unique_ptr<asio::io_context>> all;
    std::vector<std::unique_ptr<Listener<Protocol>>> listeners;
    for (unsigned index = 0; index < contexts; index++) {
        all.push_back(std::make_unique<asio::io_context>(hint));
        listeners.push_back(
            std::make_unique<Listener<Protocol>>(*all.back(), protocol, options, fds[index]));
        listeners.back()->accept();
    }
    std::vector<std::thread> threads;
    for (unsigned index = 0; index < options.workers; index++)
        threads.emplace_back(
            [&context = *all[one_context ? 0 : index], variant] { run(context, variant); });
    announce(&options);
    for (auto &thread : threads)
        thread.join();
    die(&options, "the loops ended", 0);
}

} // namespace

int main(int argc, char **argv)
{
    static const char *const variants[] = {"threads", "contexts", "poll", nullptr};
    const std::string version = PEER_ASIO_NAME + std::to_string(PEER_ASIO_VERSION / 100000) + "." +
                                std::to_string(PEER_ASIO_VERSION / 100 % 1000) + "." +
                                std::to_string(PEER_ASIO_VERSION % 100);
    options options;
    parse_options(argc, argv, "asio", version.c_str(), variants, &options);
    try {
        if (is_unix(&options))
            serve(options, asio::local::stream_protocol());
        else if (options.address.ss_family == AF_INET6)
            serve(options, asio::ip::tcp::v6());
        else
            serve(options, asio::ip::tcp::v4());
    } catch (const std::exception &error) {
        die(&options, error.what(), 0);
    }
}
