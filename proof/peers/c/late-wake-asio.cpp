/* Asio: posts are made by asio::post. What a post queues on the loop itself
 * is queued by asio::post or asio::defer from within its handler. */
#include "late-wake.h"

#ifdef ASIO_STANDALONE
#include <asio.hpp>
#include <asio/version.hpp>
#define RUNTIME "Asio"
#define RUNTIME_VERSION ASIO_VERSION
namespace net = asio;
using net_error = std::error_code;
#else
#include <boost/asio.hpp>
#include <boost/version.hpp>
#define RUNTIME "Boost.Asio"
#define RUNTIME_VERSION BOOST_ASIO_VERSION
namespace net = boost::asio;
using net_error = boost::system::error_code;
#endif

#include <chrono>
#include <string>

namespace {

struct loop {
    net::io_context context{1};
    bool defer = false;
};

void post_first(void *argument)
{
    auto &own = *static_cast<loop *>(argument);
    net::post(own.context, [&own] {
        mark_first();
        if (own.defer)
            net::defer(own.context, [] { mark_local(); });
        else
            net::post(own.context, [] { mark_local(); });
        until_second();
    });
}

void post_second(void *argument)
{
    net::post(static_cast<loop *>(argument)->context, [] { mark_second(); });
}

} // namespace

int main(int argc, char **argv)
{
    static const char *const variants[] = {"post", "defer", nullptr};
    auto version = std::string(RUNTIME) + " " + std::to_string(RUNTIME_VERSION / 100000) + "." +
                   std::to_string(RUNTIME_VERSION / 100 % 1000) + "." +
                   std::to_string(RUNTIME_VERSION % 100);
    struct probe probe;
    probe_parse(argc, argv, "late-wake-asio", version.c_str(), variants, &probe);
    loop own;
    own.defer = probe.variant == 1;
    net::steady_timer timer(own.context, std::chrono::milliseconds(probe.timer_ms));
    timer.async_wait([](const net_error &) {});
    net::posix::stream_descriptor idle(own.context, probe_idle_descriptor(&probe));
    idle.async_wait(net::posix::stream_descriptor::wait_read, [](const net_error &) {});
    probe_start(&probe, post_first, post_second, &own);
    own.context.run();
    probe_die(&probe, "the loop ended before all was measured", 0);
}
