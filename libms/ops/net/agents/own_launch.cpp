#include "net/agents/own_launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "slurm/hostlist.h"
#include "slurm/launch.h"

namespace ms::net {
namespace {

constexpr const char* kAlready = "MS_NETCHECK_LAUNCHED";  // so that a launch of one process does not launch another
constexpr long kFirstSpecialStep = 0xfffffff0;            // of batch scripts and interactive steps, see slurm.h

bool is_in_step() {
  const char* step = std::getenv("SLURM_STEP_ID");
  return step != nullptr && std::atol(step) < kFirstSpecialStep;
}

}  // namespace

std::vector<std::string> own_arguments() {
  const std::string line = read_file("/proc/self/cmdline", Blame::node);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) words.emplace_back(line.c_str() + at);
  words.erase(words.begin());
  return words;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) throw Error("net.launch", Blame::node, "this program does not know where it lies");
  return path.data();
}

void become_launch(const std::vector<std::string>& arguments, const std::vector<std::string>& nodes) {
  if (slurm::this_launch().size > 1 || std::getenv("SLURM_JOB_ID") == nullptr || is_in_step() ||
      std::getenv(kAlready) != nullptr)
    return;
  std::vector<std::string> words{"srun", "--mpi=pmix", "--kill-on-bad-exit=1"};
  if (!nodes.empty()) {
    words.push_back("--nodelist=" + slurm::fold_hostlist(nodes));
    words.push_back(fmt::format("--nodes={}", nodes.size()));
    words.push_back(fmt::format("--ntasks={}", nodes.size()));
    words.emplace_back("--ntasks-per-node=1");
  }
  words.push_back(own_path());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  setenv(kAlready, "1", 1);
  execvp(argv[0], argv.data());
  throw Error("net.launch", Blame::slurm, fmt::format("srun cannot be started: {}", errno_text(errno)));
}

}  // namespace ms::net
