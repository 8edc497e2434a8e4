#include "net/measure/perftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <future>
#include <vector>

#include "base/subprocess.h"
#include "base/sysroot.h"
#include "base/text.h"
#include "link/channel.h"

namespace ms::net {
namespace {

constexpr double kStart_s = 5;  // for a program to open its adapter and listen
constexpr std::size_t kMostOutput = 64 << 10;

int whole_seconds(const PairSpec& spec) { return std::max(1, static_cast<int>(std::ceil(spec.seconds))); }

std::vector<std::string> command(RdmaTest test, const RdmaPort& port, const PairSpec& spec, int tcp_port) {
  std::vector<std::string> words{test == RdmaTest::latency ? "ib_write_lat" : "ib_write_bw", "--ib-dev=" + port.device,
                                 fmt::format("--ib-port={}", port.port), fmt::format("--port={}", tcp_port),
                                 "--CPU-freq"};
  if (port.gid >= 0) words.push_back(fmt::format("--gid-index={}", port.gid));
  if (test == RdmaTest::latency) {
    words.push_back(fmt::format("--iters={}", std::clamp(spec.pings, 5, 100000)));
  } else {
    for (const std::string& word : {std::string("--report_gbits"), fmt::format("--duration={}", whole_seconds(spec)),
                                    std::string("--size=1048576"), fmt::format("--qp={}", spec.flows)})
      words.push_back(word);
    if (spec.max_gbps > 0) {
      words.push_back(fmt::format("--rate_limit={}", spec.max_gbps));
      words.emplace_back("--rate_units=g");
    }
  }
  return words;
}

SubprocessResult run(const std::vector<std::string>& words, const PairSpec& spec) {
  return run_subprocess(words, {.deadline_s = kStart_s + whole_seconds(spec) + 10, .max_output_bytes = kMostOutput});
}

std::string last_line(const SubprocessResult& result) {
  for (const std::string* text : {&result.err, &result.out}) {
    std::vector<std::string> lines = split(*text, '\n');
    while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
    if (!lines.empty()) return plain_text(trim(lines.back()), 120);
  }
  return {};
}
std::string why(const std::string& program, const SubprocessResult& result) {
  const std::string said = last_line(result);
  return fmt::format("{}: {}{}{}", program, result.describe(), said.empty() ? "" : ": ", said);
}

// Returns a port that no process listens at. Another process may take it first; then the test fails and is repeated.
int free_port() { return link::Listener(*link::parse_address("0.0.0.0:0")).port(); }

// Does anybody listen at this port, on IPv4 or IPv6? Nobody may connect to find out: the program takes one caller only.
bool is_listening(int port) {
  const std::string wanted = fmt::format(":{:04X}", port);
  const Sysroot root("/");
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const std::string& line : split(root.read(path).value_or(""), '\n')) {
      // "  0: 00000000:4E2B 00000000:0000 0A ...": address, that of the other end, state
      std::vector<std::string> words = split(line, ' ');
      std::erase(words, "");
      if (words.size() > 3 && words[1].ends_with(wanted) && words[3] == "0A") return true;
    }
  }
  return false;
}

}  // namespace

std::optional<RdmaPort> rdma_port(const FabricFacts& facts, const std::string& hcas) {
  for (const auto& [name, adapter] : facts.adapters) {
    if (adapter.state != "ACTIVE" || (!hcas.empty() && !nccl_selects(hcas, name))) continue;
    const std::size_t slash = name.find('/');
    RdmaPort port{.device = name.substr(0, slash)};
    std::from_chars(name.data() + slash + 1, name.data() + name.size(), port.port);
    for (const Gid& gid : adapter.gids)
      if (adapter.link_layer == "Ethernet" && gid.type == "RoCE v2" && gid.is_ipv4 && port.gid < 0)
        port.gid = gid.index;
    std::from_chars(adapter.rate.data(), adapter.rate.data() + adapter.rate.size(), port.gbps);
    return port;
  }
  return std::nullopt;
}

std::string why_no_perftest() {
  for (const char* program : {"ib_write_lat", "ib_write_bw"}) {
    try {
      run_subprocess({program, "--version"}, {.deadline_s = kStart_s});  // says so with exit status 1, or 0
    } catch (const Error&) { return fmt::format("{} is not installed (perftest)", program); }
  }
  return {};
}

std::optional<RdmaSeen> read_perftest(RdmaTest test, std::string_view output) {
  std::string text(output);
  std::ranges::replace(text, '\t', ' ');
  bool titled = false;
  for (const std::string& line : split(text, '\n')) {
    std::vector<std::string> words = split(line, ' ');
    std::erase(words, "");
    if (words.empty()) continue;
    titled = titled || words[0] == "#bytes";
    double values[9];
    std::size_t numbers = 0;
    for (const std::string& word : words) {
      if (numbers == std::size(values)) break;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), values[numbers]);
      if (error != std::errc() || end != word.data() + word.size()) break;
      ++numbers;
    }
    if (!titled) continue;
    // "#bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%"
    if (test == RdmaTest::latency && numbers >= 8)
      return RdmaSeen{.least_us = values[2], .p50_us = values[4], .p99_us = values[7]};
    // "#bytes #iterations BW peak BW average MsgRate"
    if (test == RdmaTest::bandwidth && numbers >= 4) return RdmaSeen{.gbps = values[3]};
  }
  return std::nullopt;
}

void await_rdma(RdmaTest test, const RdmaPort& on, const PairSpec& spec,
                const std::function<void(int port)>& listening) {
  const int port = free_port();
  const std::vector<std::string> words = command(test, on, spec, port);
  std::future<SubprocessResult> program = std::async(std::launch::async, [&] { return run(words, spec); });
  const link::Deadline deadline = link::in_seconds(kStart_s);
  using namespace std::chrono_literals;
  while (!is_listening(port) && program.wait_for(5ms) != std::future_status::ready) {
    if (link::seconds_until(deadline) == 0) break;  // it is ended by its own deadline
  }
  if (is_listening(port)) listening(port);
  const SubprocessResult result = program.get();
  if (!result.ok()) throw Error("net.rdma", Blame::node, why(words.front(), result));
}

RdmaSeen call_rdma(RdmaTest test, const RdmaPort& from, const PairSpec& spec, const std::string& host, int port) {
  std::vector<std::string> words = command(test, from, spec, port);
  words.push_back(host);
  const SubprocessResult result = run(words, spec);
  if (!result.ok()) throw Error("net.rdma", Blame::fabric, why(words.front(), result));
  const std::optional<RdmaSeen> seen = read_perftest(test, result.out);
  if (!seen) throw Error("net.rdma", Blame::fabric, fmt::format("{} printed no result", words.front()));
  return *seen;
}

}  // namespace ms::net
