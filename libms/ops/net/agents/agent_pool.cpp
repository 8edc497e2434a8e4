#include "net/agents/agent_pool.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "link/secret.h"
#include "net/measure/interface.h"

namespace ms::net {
namespace {

// Agents give up on each other after three seconds of silence, some times in a row; they should be the ones who say so.
constexpr double kSlack_s = 12;

// Open files of a check of `nodes` nodes: a connection and a launching command's pipe for each, and some.
std::size_t files_of(std::size_t nodes) { return 2 * nodes + 64; }

std::size_t room_for_unproven(std::size_t nodes) {
  constexpr std::size_t kFewest = 64;
  const std::size_t limit = link::raise_open_files(files_of(nodes) + link::Acceptor::kMostUnproven);
  if (limit < files_of(nodes) + kFewest) {
    throw user_error(
        "net.nodes",
        fmt::format("{} nodes take {} open files, and {} are allowed", nodes, files_of(nodes) + kFewest, limit),
        "ulimit -n");
  }
  return std::min(link::Acceptor::kMostUnproven, limit - files_of(nodes));
}

std::vector<link::Listener> listeners_on(const std::string& interface) {
  std::vector<link::Listener> listeners;
  for (const Interface& i : interfaces(interface))
    if (i.address.storage.ss_family == AF_INET) listeners.emplace_back(i.address);
  if (listeners.empty()) {
    throw user_error("net.interface",
                     fmt::format("this node has no IPv4 address on an interface {}* that is up", interface),
                     "'ip -br -4 address' lists those there are; --interface takes how their names begin");
  }
  return listeners;
}

Invitation invitation_to(const std::vector<link::Listener>& listeners, const std::string& interface) {
  Invitation invitation{.addresses = {}, .secret = link::new_secret(), .interface = interface};
  for (const link::Listener& listener : listeners)
    invitation.addresses.push_back(link::local_address(listener.fd()).str());
  return invitation;
}

}  // namespace

AgentPool::AgentPool(std::vector<std::string> nodes, const std::string& interface)
    : AgentPool(std::move(nodes), interface, listeners_on(interface)) {}

AgentPool::AgentPool(std::vector<std::string> nodes, const std::string& interface,
                     std::vector<link::Listener> listeners)
    : nodes_(std::move(nodes)),
      invitation_(invitation_to(listeners, interface)),
      acceptor_(std::move(listeners), invitation_.secret, room_for_unproven(nodes_.size())),
      seats_(nodes_.size()) {}

void AgentPool::gather(double seconds) {
  const link::Deadline deadline = link::in_seconds(seconds);
  while (!missing().empty()) {
    std::optional<link::Acceptor::Accepted> agent = acceptor_.accept(deadline);
    if (!agent) return;
    try {
      seat(*std::move(agent));
    } catch (const Error& error) { log::warn("net", "{}", error.message()); }
  }
}

void AgentPool::seat(link::Acceptor::Accepted agent) {
  Member member = read_member(agent.greeting);
  const auto node = std::ranges::find(nodes_, member.node);
  if (node == nodes_.end()) {
    log::warn("net", "an agent calls itself {}, which is no node of this check", plain_text(member.node, 80));
    return;
  }
  Seat& seat = seats_[static_cast<std::size_t>(node - nodes_.begin())];
  agent.channel.set_peer(member.node);
  seat.member = std::move(member);
  seat.control = std::move(agent.channel);
}

const Member* AgentPool::member(int node) const {
  const Seat& seat = seats_[static_cast<std::size_t>(node)];
  return seat.control ? &seat.member : nullptr;
}

std::vector<int> AgentPool::missing() const {
  std::vector<int> missing;
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    if (!seats_[node].control) missing.push_back(static_cast<int>(node));
  return missing;
}

void AgentPool::lose(int node) { seats_[static_cast<std::size_t>(node)].control.close_now(); }

bool AgentPool::order(int node, const TestOrder& order) {
  try {
    seats_[static_cast<std::size_t>(node)].control.send_line(to_json(order), link::in_seconds(link::kAnswer_s));
    return true;
  } catch (const Error& error) {
    log::info("net", "{}", error.message());
    lose(node);
    return false;
  }
}

void AgentPool::answers(std::map<int, int> waiting, double seconds, const std::function<void(TestAnswer)>& take,
                        const std::function<void(int node, const std::string& why)>& missed) {
  const auto fail = [&](int node, const std::string& why) {
    std::erase_if(waiting, [&](const auto& of) { return of.second == node; });
    lose(node);
    missed(node, why);
  };
  const link::Deadline deadline = link::in_seconds(seconds);
  while (!waiting.empty()) {
    std::vector<pollfd> polls;
    std::vector<int> nodes;
    for (const auto& [id, node] : waiting) {
      if (std::ranges::find(nodes, node) != nodes.end()) continue;
      nodes.push_back(node);
      polls.push_back({.fd = seats_[static_cast<std::size_t>(node)].control.fd(), .events = POLLIN, .revents = 0});
    }
    if (link::seconds_until(deadline) == 0) {
      for (const int node : nodes)
        fail(node, fmt::format("{} did not answer in time", nodes_[static_cast<std::size_t>(node)]));
      return;
    }
    poll(polls.data(), polls.size(), static_cast<int>(link::seconds_until(deadline) * 1e3) + 1);
    for (std::size_t p = 0; p < polls.size(); ++p) {
      if (polls[p].revents == 0) continue;
      try {
        while (const std::optional<std::string> line = seats_[static_cast<std::size_t>(nodes[p])].control.poll_line()) {
          TestAnswer answer = read_answer(*line);
          // No one waits for an answer of an earlier round that was given up.
          const auto order = waiting.find(answer.id);
          if (order == waiting.end() || order->second != nodes[p]) continue;
          waiting.erase(order);
          take(std::move(answer));
        }
      } catch (const Error& error) { fail(nodes[p], error.message()); }
    }
  }
}

std::vector<std::string> AgentPool::ask(const std::string& what) {
  std::vector<std::string> texts(nodes_.size());
  std::map<int, int> waiting;  // order -> node
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    const int id = next_id_++;
    if (member(node) != nullptr && order(node, {.id = id, .ask = what})) waiting.emplace(id, node);
  }
  const std::map<int, int> asked = waiting;
  answers(
      std::move(waiting), link::kAnswer_s + kSlack_s,
      [&](TestAnswer answer) { texts[static_cast<std::size_t>(asked.at(answer.id))] = std::move(answer.text); },
      [](int, const std::string& why) { log::warn("net", "{}", why); });
  return texts;
}

std::vector<PairResult> AgentPool::test(const Round& round, const PairSpec& spec, int source_port) {
  std::vector<PairResult> results = drive(round, spec, source_port);
  // Where the first of a pair cannot connect to the second, the second tries: is it the pair, or one direction?
  Round turned;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].there.unreached.empty()) continue;
    turned.emplace_back(round[i].second, round[i].first);
    places.push_back(i);
  }
  PairSpec nothing = spec;
  nothing.pings = nothing.datagrams = 0;
  nothing.seconds = 0;
  nothing.sizes = nothing.rdma = false;
  const std::vector<PairResult> other_way = turned.empty() ? std::vector<PairResult>{} : drive(turned, nothing, 0);
  for (std::size_t i = 0; i < other_way.size(); ++i) {
    results[places[i]].back.unreached = other_way[i].there.unreached;
    results[places[i]].at_fault = other_way[i].at_fault;
  }
  return results;
}

std::vector<PairResult> AgentPool::drive(const Round& round, const PairSpec& spec, int source_port) {
  std::vector<PairResult> results(round.size());
  std::map<int, std::size_t> places;  // order -> its place
  std::map<int, int> waiting;         // order -> who drives it
  for (std::size_t i = 0; i < round.size(); ++i) {
    const auto [a, b] = round[i];
    PairResult& result = results[i];
    result.a = a;
    result.b = b;
    result.at_once = spec.both_at_once && spec.back;
    for (const int node : {a, b}) {
      if (member(node) != nullptr || !result.error.empty()) continue;
      result.error = fmt::format("{} is gone", nodes_[static_cast<std::size_t>(node)]);
      result.at_fault = node;
    }
    if (!result.error.empty()) continue;
    const int id = next_id_++;
    if (order(a, {.id = id,
                  .address = member(b)->address.str(),
                  .node = nodes_[static_cast<std::size_t>(b)],
                  .source_port = source_port,
                  .spec = spec})) {
      places.emplace(id, i);
      waiting.emplace(id, a);
    } else {
      result.error = fmt::format("{} is gone", nodes_[static_cast<std::size_t>(a)]);
      result.at_fault = a;
    }
  }
  std::set<int> answered;
  answers(
      std::move(waiting), most_seconds(spec) + kSlack_s,
      [&](TestAnswer answer) {
        PairResult& result = results[places.at(answer.id)];
        answer.result.a = result.a;
        answer.result.b = result.b;
        answer.result.at_once = result.at_once;
        result = std::move(answer.result);
        answered.insert(answer.id);
      },
      [&](int node, const std::string& why) {
        for (const auto& [id, i] : places) {
          if (results[i].a != node || answered.contains(id)) continue;
          results[i].error = why;
          results[i].at_fault = node;
        }
      });
  return results;
}

}  // namespace ms::net
