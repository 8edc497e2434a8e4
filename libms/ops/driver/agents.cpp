#include "driver/agents.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "slurm/beside.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

// A step that is started may wait for a busy controller, and its agent for its turn among many. Steps of one node each,
// as long as there are not too many: a step ends as a whole when one of its nodes does not answer.
constexpr double kStart_s = 20, kStartNode_s = 5e-3, kFirst_s = 2;
constexpr std::size_t kAloneUpTo = 64;
constexpr double kLog_s = 0.5;  // changes within it are one line

}  // namespace

Agents::Agents(AgentsOptions options, Hub& hub, Clock& clock, bool expects_agents)
    : options_(std::move(options)),
      hub_(hub),
      clock_(clock),
      start_s_(kStart_s + kStartNode_s * static_cast<double>(options_.nodes.size())) {
  const double since_s = expects_agents ? clock_.now_s() - start_s_ + kFirst_s : -1e9;
  for (const std::string& node : options_.nodes) seats_[node] = {.id = 0, .address = {}, .started_s = since_s};
}

std::optional<AgentSays> Agents::take(const Hub::Event& event) {
  const auto found = seats_.find(event.node);
  if (event.role != agent_role(options_.job) || found == seats_.end()) {
    if (event.kind == Hub::Kind::joined) hub_.close(event.id);
    return std::nullopt;
  }
  Seat& seat = found->second;
  if (event.kind == Hub::Kind::joined) {
    if (seat.id != 0) hub_.close(seat.id);  // the newer one is the one that lives
    seat.id = event.id;
    seat.address = hub_.address(event.id);
    note(event.node, "here");
    return std::nullopt;
  }
  if (event.id != seat.id) return std::nullopt;
  if (event.kind == Hub::Kind::gone) {
    note(event.node, "gone: " + plain_text(event.text, 120));
    seat.id = 0;
    seat.started_s = clock_.now_s() - start_s_ + 0.5;  // another one, soon
    return std::nullopt;
  }
  try {
    return read_agent(event.text);
  } catch (const Error& error) {
    log::warn("driver", "the agent of {}: {}", event.node, plain_text(error.message(), 200));
    return std::nullopt;
  }
}

void Agents::note(const std::string& node, const std::string& what) {
  if (changes_.empty()) changed_s_ = clock_.now_s();
  changes_[what].push_back(node);
}

void Agents::log_changes() {
  for (const auto& [what, nodes] : changes_) {
    const bool one = nodes.size() == 1;
    log::info("driver", "the agent{} of {} {} {}", one ? "" : "s", slurm::fold_hostlist(nodes), one ? "is" : "are",
              what);
  }
  changes_.clear();
}

void Agents::tick(const std::set<std::string>& without) {
  if (clock_.now_s() - changed_s_ > kLog_s) log_changes();
  std::vector<std::string> missing;
  for (auto& [node, seat] : seats_) {
    if (seat.id != 0 || clock_.now_s() - seat.started_s < start_s_ || without.contains(node)) continue;
    seat.started_s = clock_.now_s();
    missing.push_back(node);
  }
  std::erase_if(commands_, [](LongCommand& command) { return command.ended(); });
  const std::size_t each = missing.size() <= kAloneUpTo ? 1 : kAloneUpTo;
  for (std::size_t first = 0; first < missing.size(); first += each) {
    const auto begin = missing.begin() + static_cast<std::ptrdiff_t>(first);
    start({begin, begin + static_cast<std::ptrdiff_t>(std::min(each, missing.size() - first))});
  }
}

void Agents::start(const std::vector<std::string>& nodes) {
  try {
    std::vector<std::string> command = slurm::srun_beside(nodes, options_.agent);
    command.insert(command.begin() + 1, "--export=ALL");  // whatever the job's own sbatch --export said
    commands_.push_back(LongCommand::start(command, environment_with({{"MS_HEARTBEAT", options_.heartbeat}}),
                                           options_.output_file,
                                           fmt::format("{}/agents-{}.status", options_.status_dir, starts_++)));
  } catch (const Error& error) { log::warn("driver", "{}", error.message()); }
}

void Agents::order(const std::string& node, const Order& order) {
  const auto found = seats_.find(node);
  if (found != seats_.end() && found->second.id != 0) hub_.send(found->second.id, to_json(order));
}

void Agents::order(const std::vector<std::string>& nodes, const Order& order) {
  for (const std::string& node : nodes) this->order(node, order);
}

std::size_t Agents::connected() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(seats_, [](const auto& entry) { return entry.second.id != 0; }));
}

std::set<std::string> Agents::ask(const std::vector<std::string>& silent) {
  for (const std::string& node : silent) {
    const auto found = seats_.find(node);
    if (found != seats_.end() && found->second.address) prober_.ask(node, *found->second.address, clock_.now_s());
  }
  return prober_.answers(clock_.now_s());
}

void Agents::stop() {
  log_changes();
  for (const auto& [node, seat] : seats_) order(node, {.what = "quit", .attempt = 0});
  const double until_s = clock_.now_s() + 2;
  while (!commands_.empty() && clock_.now_s() < until_s) {
    hub_.wait(0.05);
    std::erase_if(commands_, [](LongCommand& command) { return command.ended(); });
  }
  for (const LongCommand& command : commands_) command.signal(SIGKILL);
  for (int i = 0; i < starts_; ++i) unlink(fmt::format("{}/agents-{}.status", options_.status_dir, i).c_str());
}

}  // namespace ms::driver
