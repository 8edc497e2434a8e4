#include "diag/rdma.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/number.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "diag/share.h"

namespace ms::diag {
namespace {

constexpr int kFirstTcpPort = 18515;  // perftest's own, and those behind it
constexpr int kConnectTries = 20;
constexpr std::chrono::milliseconds kConnectPause{100};
constexpr int kMostNodes = 1024;

// "0-3,8": numbers of a list of the kernel's.
std::vector<int> numbers_in(const std::string& list) {
  std::vector<int> numbers;
  for (const std::string& part : split(list, ',')) {
    std::string_view text = part;
    const auto first = take_number<int>(text);
    if (!first) continue;
    const int last = text.starts_with('-') ? leading_number<int>(text.substr(1)).value_or(*first) : *first;
    for (int number = *first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

// Memory of the calling thread, and of the programs that it starts, comes from this node alone from now on.
bool bind_memory(int node) {
  std::array<unsigned long, kMostNodes / 64> mask{};
  if (node >= kMostNodes) return false;
  mask[static_cast<std::size_t>(node) / 64] |= 1UL << (node % 64);
  return ::syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), kMostNodes) == 0;
}

std::vector<std::string> arguments(const std::string& tool, const RdmaPort& port, int gpu, int number) {
  std::vector<std::string> words{tool,
                                 "-d",
                                 port.adapter,
                                 "-i",
                                 std::to_string(port.port),
                                 "-p",
                                 std::to_string(kFirstTcpPort + number),
                                 "-s",
                                 "1048576",
                                 "-n",
                                 "2000",
                                 "-F",
                                 "--report_gbits"};
  if (gpu >= 0) words.push_back(fmt::format("--use_cuda={}", gpu));
  return words;
}

std::string last_line(const std::string& text) {
  const std::string_view trimmed = trim(text);
  return plain_text(trimmed.substr(trimmed.rfind('\n') + 1), 120);
}

RdmaRun both_ends(const std::string& tool, const RdmaPort& from, const RdmaPort& to, int gpu, int number) {
  const SubprocessOptions options{.deadline_s = kRdmaDeadline_s};
  std::future<SubprocessResult> server = std::async(
      std::launch::async, [&, words = arguments(tool, to, gpu, number)] { return run_subprocess(words, options); });
  std::vector<std::string> words = arguments(tool, from, gpu, number);
  words.emplace_back("127.0.0.1");  // where they exchange addresses; the data goes through the adapters
  SubprocessResult client;
  // The client gives up at once where the server does not listen yet.
  for (int i = 0; i < kConnectTries; ++i) {
    client = run_subprocess(words, options);
    const bool served = server.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    const bool refused = (client.out + client.err).find("onnect") != std::string::npos;  // "Couldn't connect to"
    if (client.ok() || client.timed_out || served || !refused) break;
    std::this_thread::sleep_for(kConnectPause);
  }
  const SubprocessResult served = server.get();
  if (const std::optional<double> gbps = client.ok() ? bandwidth_in(client.out) : std::nullopt) return {.gbps = *gbps};
  const SubprocessResult* const ends[] = {&served, &client};
  for (const SubprocessResult* end : ends) {
    const std::string line = last_line(end->err.empty() ? end->out : end->err);
    if (!end->ok() && !line.empty()) return {.why = line};
  }
  return {.why = client.ok() ? "it printed no bandwidth" : client.describe()};
}

}  // namespace

std::string RdmaPort::name() const { return fmt::format("{}/{}", adapter, port); }

std::vector<RdmaPort> active_ports(const Sysroot& root) {
  std::vector<RdmaPort> ports;
  for (const std::string& adapter : root.list("/sys/class/infiniband")) {
    const std::string directory = "/sys/class/infiniband/" + adapter;
    for (const std::string& port : root.list(directory + "/ports")) {
      const std::string at = directory + "/ports/" + port;
      if (!root.read(at + "/state", 64).value_or("").starts_with("4:")) continue;
      RdmaPort found;
      found.adapter = adapter;
      found.port = std::atoi(port.c_str());
      found.gbps = std::strtod(root.read(at + "/rate", 64).value_or("0").c_str(), nullptr);
      found.model = fmt::format("{}@{:.0f}", root.read(directory + "/hca_type", 64).value_or("?"), found.gbps);
      ports.push_back(found);
    }
  }
  return ports;
}

std::vector<MemoryNode> memory_nodes(const Sysroot& root) {
  const std::string all = "/sys/devices/system/node";
  std::vector<MemoryNode> nodes;
  for (const int number : numbers_in(root.read(all + "/has_memory").value_or(""))) {
    nodes.push_back({number, numbers_in(root.read(fmt::format("{}/node{}/cpulist", all, number)).value_or(""))});
  }
  return nodes;
}

std::optional<double> bandwidth_in(std::string_view output) {
  constexpr std::size_t kColumns = 4;  // #bytes #iterations BW-peak BW-average, and perhaps more
  std::optional<double> found;
  for (const std::string& line : split(output, '\n')) {
    std::vector<double> columns;
    for (const std::string& word : split(line, ' ')) {
      if (trim(word).empty()) continue;
      const auto value = whole_number<double>(trim(word));
      if (!value) {
        columns.clear();
        break;
      }
      columns.push_back(*value);
    }
    if (columns.size() >= kColumns) found = columns[kColumns - 1];
  }
  return found;
}

RdmaRun write_bandwidth(const std::string& tool, const RdmaPort& from, const RdmaPort& to, const RdmaPlace& place,
                        int number) {
  if (place.node == nullptr) return both_ends(tool, from, to, place.gpu, number);
  // In a thread of its own, with which what is bound here ends. A thread of it that starts the server inherits both.
  return std::async(std::launch::async,
                    [&, node = *place.node]() -> RdmaRun {
                      if (!bind_memory(node.number)) {
                        return {.why = fmt::format("memory node {}: {}", node.number, errno_text(errno))};
                      }
                      if (node.cpus.empty()) return both_ends(tool, from, to, place.gpu, number);  // memory alone
                      const OnCpus bound(node.cpus);
                      return both_ends(tool, from, to, place.gpu, number);
                    })
      .get();
}

Rate rdma_rate(const std::string& entity, double gbps, const RdmaPort& port, const health::ActiveConfig& expect) {
  return {entity, gbps, expect.rdma_gbps, "Gbit/s", known_limit(port.model, "rdma_gbps")};
}

health::Result rdma_result(const std::vector<Rate>& rates, const std::vector<std::string>& not_measured,
                           const Share& share, double min_fraction, const std::string& how) {
  const std::string missing = fmt::format("{}", fmt::join(not_measured, "; "));
  if (rates.empty()) return health::skipped(missing);
  health::Result result = judge_rates(rates, min_fraction, share, Scope::device, how, Severity::warning);
  if (!missing.empty()) result.note += "; not measured: " + missing;
  return result;
}

}  // namespace ms::diag
