#include "driver/ras.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/escape.h"
#include "base/number.h"
#include "base/text.h"

namespace ms::driver {
namespace {

constexpr int kUsualPort = 28028;
constexpr std::size_t kMostReport_bytes = std::size_t{64} << 20, kMostLine_bytes = 256;
constexpr std::size_t kMostSockets_bytes = std::size_t{16} << 20;
constexpr double kTwice_s = 6, kBetween_s = 1.5;
constexpr int kLeg_s = 2;  // that RAS waits for processes that do not answer it

// The ports of the tasks, without those for which RAS is off.
std::set<int> ras_ports(const Sysroot& root, const std::vector<Task>& tasks) {
  std::set<int> ports;
  for (const Task& task : tasks) {
    if (variable_of(root, task.pid, "NCCL_RAS_ENABLE") == "0") continue;
    const std::string address = variable_of(root, task.pid, "NCCL_RAS_ADDR").value_or("");
    ports.insert(
        whole_number<int>(address.substr(std::min(address.rfind(':') + 1, address.size()))).value_or(kUsualPort));
  }
  return ports;
}

// Returns the address of "0100007F:6D7C", as /proc/net/tcp has it: words of 32 bits, each in the order of this machine.
// That of all interfaces becomes the loopback.
std::optional<link::Address> address_in(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  const std::optional<int> port = whole_number<int>(text.substr(colon + 1), 16);
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; 8 * i < colon; ++i) {
    const auto word = whole_number<std::uint32_t>(text.substr(8 * i, 8), 16);
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  std::array<char, INET6_ADDRSTRLEN> name{};
  inet_ntop(colon == 8 ? AF_INET : AF_INET6, words.data(), name.data(), name.size());
  std::string host = name.data();
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  return port ? link::parse_address(fmt::format(fmt::runtime(colon == 8 ? "{}:{}" : "[{}]:{}"), host, *port))
              : std::nullopt;
}

// The addresses at these ports at which sockets of this user listen, by "socket:[number]".
std::vector<std::pair<std::string, link::Address>> listeners(const Sysroot& root, const std::set<int>& ports) {
  constexpr std::string_view kListens = "0A";
  std::vector<std::pair<std::string, link::Address>> found;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const std::string text = root.read(file, kMostSockets_bytes).value_or("");
    for (const std::string& line : split(text, '\n')) {
      std::vector<std::string> words = split(line, ' ');
      std::erase(words, "");
      if (words.size() < 10 || words[3] != kListens || whole_number<unsigned>(words[7]) != geteuid()) continue;
      const std::optional<link::Address> address = address_in(words[1]);
      if (address && ports.contains(address->port())) found.emplace_back("socket:[" + words[9] + "]", *address);
    }
  }
  return found;
}

bool is_report(std::string_view text) {
  return text.find("\"communicators_count\"") != text.npos || text.find("Job summary") != text.npos;
}

// Returns the answer to a line.
std::string say(link::Channel& ras, std::string_view line, link::Deadline deadline) {
  ras.send_line(line, deadline);
  return ras.receive_line(deadline, kMostLine_bytes);
}

}  // namespace

std::optional<link::Address> ras_address(const Sysroot& root, const std::vector<Task>& tasks) {
  const auto found = listeners(root, ras_ports(root, tasks));
  if (found.empty()) return std::nullopt;
  for (const Task& task : tasks) {
    const std::string directory = fmt::format("/proc/{}/fd", task.pid);
    for (const std::string& name : root.list(directory)) {
      const auto held = std::ranges::find(found, root.link_name(directory + "/" + name),
                                          &std::pair<std::string, link::Address>::first);
      if (held != found.end()) return held->second;
    }
  }
  return std::nullopt;
}

RasAnswer ask_ras(const link::Address& address, link::Deadline deadline) {
  try {
    link::Channel ras = link::Channel::connect(address, "NCCL's RAS at " + address.str(), deadline);
    const std::string greeting = say(ras, "client protocol 2", deadline);
    if (!greeting.starts_with("SERVER PROTOCOL "))
      return {.report = {}, .problem = "it is not RAS: " + plain_text(greeting, 60)};
    say(ras, fmt::format("timeout {}", kLeg_s), deadline);
    say(ras, "set format json", deadline);  // an error before NCCL 2.28, which then reports as text
    ras.send_line("verbose status", deadline);
    std::string report;
    std::array<std::byte, std::size_t{1} << 16> buffer{};
    while (const std::size_t got = ras.receive_some(buffer, deadline)) {
      if (link::seconds_until(deadline) <= 0) return {.report = {}, .problem = "its report does not end in time"};
      report.append(reinterpret_cast<const char*>(buffer.data()), got);
      if (report.size() > kMostReport_bytes) return {.report = {}, .problem = "its report is longer than 64 MiB"};
    }
    if (!is_report(report)) return {.report = {}, .problem = "its answer is no report"};
    return {.report = safe_lines(report), .problem = {}};
  } catch (const Error& error) { return {.report = {}, .problem = plain_text(error.message(), 200)}; }
}

RasAnswers ask_ras_twice(const Sysroot& root, const std::vector<Task>& tasks) {
  RasAnswers answers;
  const link::Deadline deadline = link::in_seconds(kTwice_s);
  while (const std::optional<link::Address> address = ras_address(root, tasks)) {
    RasAnswer answer = ask_ras(*address, deadline);
    answers.problem = std::move(answer.problem);
    if (answer.report.empty()) break;
    answers.reports.push_back(std::move(answer.report));
    if (answers.reports.size() == 2 || link::seconds_until(deadline) < 2 * kBetween_s) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(kBetween_s));
  }
  return answers;
}

}  // namespace ms::driver
