#include "checkpoint_tools.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/thread_world.h"
#include "tensor/cpu_device.h"

namespace ms::bench {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double time_of(const std::function<void()>& work) {
  const double start = now_s();
  work();
  return now_s() - start;
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void on_ranks(const train::Settings& settings, const Body& body) {
  const int ranks = static_cast<int>(settings.mesh.dp);
  const train::Plan plan = train::make_plan(settings, ranks);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(tensor::CpuPool::size_for(tensor::CpuPool::usable_cores(), ranks, ranks));
  comm::ThreadHub hub(ranks, std::chrono::seconds(600));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<comm::World> world = hub.world(rank);
      tensor::CpuDevice device(pool, matmuls);
      try {
        body(plan, *world, device);
        world->close();
      } catch (const Error& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        std::_Exit(1);  // the other ranks would wait forever
      }
    });
  }
}

namespace {

// Seconds that a command of the system takes; it must succeed.
double run_command(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const double start = now_s();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    fmt::print(stderr, "cannot run {}\n", words.front());
    std::_Exit(1);
  }
  return now_s() - start;
}
}  // namespace

double dd_write_s(const std::string& file, std::int64_t bytes) {
  return run_command({"dd", "if=/dev/zero", "of=" + file, "bs=16M", "iflag=count_bytes", fmt::format("count={}", bytes),
                      "conv=fsync,notrunc", "status=none"});
}
double dd_read_s(const std::string& file) {
  return run_command({"dd", "if=" + file, "of=/dev/null", "bs=16M", "status=none"});
}
void drop_from_cache(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) std::_Exit(1);
  ::close(fd);
}

}  // namespace ms::bench
