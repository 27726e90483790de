// A key-value server (GET and SET of RESP) on Asio, with the architecture of the
// public case: every worker runs the same io_context, and any of them serves any
// connection.
//
// It is written with care, but still wrong: the table of sessions has a mutex,
// each session has one, and handlers hold a number that they look up instead of
// a pointer. But the session that was found in the table is used after the
// table's mutex is released. The thread that reads sees that the client is gone
// and closes the session, which frees it, while another thread is about to write
// its answers to it.
//
// The variant `strand` differs in one line: the handlers of a session, including
// its end, run one at a time. It is the control, and must not crash.
//
// It is built with AddressSanitizer, which ends it with exit code 86 and a
// report.
#include "peer.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#ifdef ASIO_STANDALONE
#include <asio.hpp>
using error_code = asio::error_code;
#define PEER_ASIO_VERSION ASIO_VERSION
#define PEER_ASIO_NAME "Asio "
#else
#include <boost/asio.hpp>
namespace asio = boost::asio;
using error_code = boost::system::error_code;
#define PEER_ASIO_VERSION BOOST_ASIO_VERSION
#define PEER_ASIO_NAME "Boost.Asio "
#endif

using asio::ip::tcp;

extern "C" const char *__asan_default_options()
{
    return "exitcode=86:detect_leaks=0";
}

namespace {

// The order of `variants` in main.
enum Variant : unsigned { SHARED, STRAND };

// A longer request is refused.
constexpr std::size_t MOST_REQUEST = 1 << 20;

using Command = std::vector<std::string>;

// Takes one command from the front of `bytes`. Returns 1 if it did, 0 if the
// command is incomplete, and -1 if the bytes are not a command.
int take_command(std::string &bytes, Command &command)
{
    std::size_t at = 0;
    auto number = [&](char kind, std::size_t &value) {
        std::size_t end = bytes.find("\r\n", at);
        if (end == std::string::npos)
            return bytes.size() - at > 32 ? -1 : 0;
        if (bytes[at] != kind)
            return -1;
        value = std::strtoul(bytes.c_str() + at + 1, nullptr, 10);
        at = end + 2;
        return value > MOST_REQUEST ? -1 : 1;
    };
    std::size_t words, length;
    if (int is = number('*', words); is != 1)
        return is;
    command.clear();
    for (std::size_t word = 0; word < words; word++) {
        if (int is = number('$', length); is != 1)
            return is;
        if (bytes.size() < at + length + 2)
            return bytes.size() > MOST_REQUEST ? -1 : 0;
        command.emplace_back(bytes, at, length);
        at += length + 2;
    }
    bytes.erase(0, at);
    return 1;
}

class Store {
public:
    std::string answer(const Command &command)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (command.size() == 3 && command[0] == "SET") {
            values_[command[1]] = command[2];
            return "+OK\r\n";
        }
        if (command.size() == 2 && command[0] == "GET") {
            auto found = values_.find(command[1]);
            if (found == values_.end())
                return "$-1\r\n";
            return "$" + std::to_string(found->second.size()) + "\r\n" + found->second + "\r\n";
        }
        return "-ERR only GET and SET\r\n";
    }

private:
    std::mutex mutex_;
    std::unordered_map<std::string, std::string> values_;
};

struct Session {
    explicit Session(tcp::socket &&socket) : socket(std::move(socket)) {}

    // Guards everything that follows.
    std::mutex mutex;
    tcp::socket socket;
    std::array<char, 16 << 10> input;
    std::string received;
    // Requests that wait for those that are being answered.
    std::vector<Command> requests;
    bool is_answering = false;
    // Answers that wait for those that are being written.
    std::string waiting;
    std::string writing;
};

using Id = std::uint64_t;

class Sessions {
public:
    Id open(tcp::socket &&socket)
    {
        auto session = std::make_unique<Session>(std::move(socket));
        std::lock_guard<std::mutex> lock(mutex_);
        sessions_.emplace(++last_, std::move(session));
        return last_;
    }

    Session *find(Id id)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = sessions_.find(id);
        return found == sessions_.end() ? nullptr : found->second.get();
    }

    void close(Id id)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        sessions_.erase(id);
    }

private:
    std::mutex mutex_;
    std::unordered_map<Id, std::unique_ptr<Session>> sessions_;
    Id last_ = 0;
};

class Server {
public:
    Server(asio::io_context &context, const tcp &protocol, int fd, Variant variant)
        : context_(context), acceptor_(context, protocol, fd), pause_(context), variant_(variant)
    {
    }

    void accept()
    {
        asio::any_io_executor executor = context_.get_executor();
        if (variant_ == STRAND)
            executor = asio::make_strand(context_);
        acceptor_.async_accept(executor, [this, executor](const error_code &error,
                                                          tcp::socket socket) {
            if (error) {
                // There may be no descriptor left.
                pause_.expires_after(std::chrono::milliseconds(PEER_ACCEPT_PAUSE_MS));
                pause_.async_wait([this](const error_code &) { accept(); });
                return;
            }
            Id id = sessions_.open(std::move(socket));
            asio::post(executor, [this, id] { read(id); });
            accept();
        });
    }

private:
    void read(Id id)
    {
        Session *session = sessions_.find(id);
        if (session == nullptr)
            return;
        std::lock_guard<std::mutex> lock(session->mutex);
        session->socket.async_read_some(
            asio::buffer(session->input),
            [this, id](const error_code &error, std::size_t count) { on_read(id, error, count); });
    }

    void on_read(Id id, const error_code &error, std::size_t count)
    {
        if (error) {
            sessions_.close(id);
            return;
        }
        Session *session = sessions_.find(id);
        if (session == nullptr)
            return;
        int is;
        {
            std::lock_guard<std::mutex> lock(session->mutex);
            session->received.append(session->input.data(), count);
            Command command;
            while ((is = take_command(session->received, command)) == 1)
                session->requests.push_back(std::move(command));
            // Answers are made in another handler, so that reads go on. They are in
            // order, so only one such handler runs at a time.
            if (!session->requests.empty() && !session->is_answering) {
                session->is_answering = true;
                asio::post(session->socket.get_executor(), [this, id] { answer(id); });
            }
        }
        if (is < 0)
            sessions_.close(id);
        else
            read(id);
    }

    void answer(Id id)
    {
        Session *session = sessions_.find(id);
        if (session == nullptr)
            return;
        std::vector<Command> requests;
        {
            std::lock_guard<std::mutex> lock(session->mutex);
            requests.swap(session->requests);
        }
        std::string answers;
        for (const Command &request : requests)
            answers += store_.answer(request);
        // Another thread may have closed the session in the meantime.
        std::lock_guard<std::mutex> lock(session->mutex);
        session->waiting += answers;
        if (session->writing.empty())
            start_writing(id, *session);
        if (session->requests.empty())
            session->is_answering = false;
        else
            asio::post(session->socket.get_executor(), [this, id] { answer(id); });
    }

    void start_writing(Id id, Session &session)
    {
        session.writing.swap(session.waiting);
        asio::async_write(
            session.socket, asio::buffer(session.writing),
            [this, id](const error_code &error, std::size_t) { on_written(id, error); });
    }

    void on_written(Id id, const error_code &error)
    {
        if (error) {
            sessions_.close(id);
            return;
        }
        Session *session = sessions_.find(id);
        if (session == nullptr)
            return;
        std::lock_guard<std::mutex> lock(session->mutex);
        session->writing.clear();
        if (!session->waiting.empty())
            start_writing(id, *session);
    }

    asio::io_context &context_;
    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    Variant variant_;
    Store store_;
    Sessions sessions_;
};

} // namespace

int main(int argc, char **argv)
{
    static const char *const variants[] = {"shared", "strand", nullptr};
    std::string version = PEER_ASIO_NAME + std::to_string(PEER_ASIO_VERSION / 100000) + "." +
                          std::to_string(PEER_ASIO_VERSION / 100 % 1000) + "." +
                          std::to_string(PEER_ASIO_VERSION % 100);
    options options;
    parse_options(argc, argv, "shared-socket-asio", version.c_str(), variants, &options);
    if (is_unix(&options))
        die(&options, "it listens on IP:PORT only", 0);
    int *listeners = open_listeners(&options, 1);
    asio::io_context context(static_cast<int>(options.workers));
    Server server(context, options.address.ss_family == AF_INET ? tcp::v4() : tcp::v6(),
                  listeners[0], static_cast<Variant>(options.variant));
    server.accept();
    announce(&options);
    std::vector<std::thread> workers;
    for (unsigned worker = 1; worker < options.workers; worker++)
        workers.emplace_back([&context] { context.run(); });
    context.run();
    die(&options, "the context ended", 0);
}
