#include "train/run/replay.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/sysroot.h"
#include "base/text.h"

namespace ms::train {
namespace {

constexpr const char* kDeviceKey = "replayed on";
constexpr std::chrono::milliseconds kLookEvery{5};

// Returns the processor and its instruction set, or the GPU: what a rank's bits depend on.
std::string computes_on(tensor::Device& device) {
  if (device.kind() == "cuda") return device.name();
  const std::string text = Sysroot().read("/proc/cpuinfo").value_or("");
  const std::size_t begin = text.find("model name");
  const std::string model = begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  return fmt::format("{}, {}", model, device.name());
}

}  // namespace

std::vector<int> in_the_minority(const std::vector<std::uint64_t>& bits) {
  std::map<std::uint64_t, std::size_t> times;
  for (const std::uint64_t one : bits) ++times[one];
  const auto most = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
  std::vector<int> others;
  if (most == times.end() || 2 * most->second <= bits.size()) return others;
  for (std::size_t dp = 0; dp < bits.size(); ++dp) {
    if (bits[dp] != most->first) others.push_back(static_cast<int>(dp));
  }
  return others;
}

Replay::Replay(const Plan& plan, comm::World& world, tensor::Device& device)
    : plan_(plan),
      world_(world),
      every_(plan.settings.guard.replay_every),
      on_gpu_(device.kind() == "cuda"),
      since_s_(monotonic_s()) {
  if (every_ == 0) return;
  const std::string mine = computes_on(device);
  if (world.rank() == 0) {
    world.store().put(kDeviceKey, mine);
    world.store().commit();
  }
  const std::string first = world.store().get(0, kDeviceKey, world.patience().ceiling());
  if (mine == first) return;
  throw user_error("replay.devices",
                   fmt::format("guard.replay_every: rank {} computes on '{}', rank 0 on '{}', and their bits differ",
                               world.rank(), plain_text(mine, 100), plain_text(first, 100)),
                   "set guard.replay_every = 0, or train on nodes of one kind");
}

void Replay::check(Engine& engine, std::int64_t step) {
  const double begin_s = monotonic_s();
  const auto of = static_cast<int>(step / every_ % plan_.mesh.dp);
  const std::vector<std::uint64_t> bits = engine.replay(of);
  const double end_s = monotonic_s(), share = (end_s - begin_s) / (end_s - since_s_);
  since_s_ = end_s;
  if (bits.empty()) {
    if (world_.rank() == 0)
      log::info(
          "train",
          "step {}: a microbatch of dp rank {} has the same bits on all {} dp ranks, in {:.3f} s, {:.2f} % of the time",
          step + 1, of, plan_.mesh.dp, end_s - begin_s, 100 * share);
    return;
  }
  const std::vector<int> wrong = in_the_minority(bits);
  const std::string since = step + 1 > every_
                                ? fmt::format("checkpoints after step {} may hold its errors", step + 1 - every_)
                                : std::string("all checkpoints of this start may hold its errors");
  if (!wrong.empty()) accuse(wrong, fmt::format("step {}: a microbatch of dp rank {}", step + 1, of), since);
  const std::string why = plan_.mesh.dp == 2 ? "one of the two computes wrongly; a third would show which"
                                             : "at most half of them agree, so the wrong ones are not known";
  throw Error(
      "replay.tie", Blame::peer,
      fmt::format("step {}: a microbatch of dp rank {} has other bits on other dp ranks: {}", step + 1, of, why),
      fmt::format("'ms-diag run --level 2' on all nodes; {}", since));
}

void Replay::accuse(const std::vector<int>& wrong, const std::string& what, const std::string& hint) {
  std::vector<int> ranks;
  std::set<std::string> nodes;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (std::ranges::find(wrong, plan_.mesh.coord(rank).dp) == wrong.end()) continue;
    ranks.push_back(rank);
    nodes.insert(world_.node(rank));
  }
  // The one that is accused says so, for the verdict to be of its node; the others hear it.
  const auto end = std::chrono::steady_clock::now() + world_.patience().ceiling();
  while (world_.rank() != ranks.front() && !world_.cause() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kLookEvery);
  if (const std::optional<comm::World::Cause> cause = world_.cause()) throw cause->error;
  const Blame blame = nodes.size() > 1 ? Blame::peer : on_gpu_ ? Blame::gpu : Blame::node;
  throw Error("replay.differs", blame,
              fmt::format("{} has other bits on dp rank {} than on all others: {} of rank {}, on {}, computes wrongly",
                          what, fmt::join(wrong, ", "), ranks.size() == 1 ? "the device" : "a device",
                          fmt::join(ranks, ", "), fmt::join(nodes, ", ")),
              hint)
      .with_rank(ranks.front());
}

}  // namespace ms::train
