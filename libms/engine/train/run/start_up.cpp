#include "train/run/start_up.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "tensor/cpu_isa.h"

namespace ms::train {
namespace {

constexpr std::string_view kTextKey = "configuration", kInstructionSetKey = "instruction set";

comm::Group everybody(const comm::World& world) {
  comm::Group group{"world", 0, std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

// As many whole lines as the store takes.
std::string publishable(std::string values) {
  if (values.size() > comm::kMaxStoreValueBytes) values.resize(values.rfind('\n', comm::kMaxStoreValueBytes));
  return values;
}

}  // namespace

std::string first_difference(const std::string& here, const std::string& there) {
  const std::vector<std::string> mine = split(here, '\n'), theirs = split(there, '\n');
  std::string section;
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    if (mine[i] != theirs[i]) {
      const std::size_t equals = mine[i].find(" = ");
      if (equals == std::string::npos || theirs[i].compare(0, equals + 3, mine[i], 0, equals + 3) != 0) {
        return "their settings have different names";  // not even the same version of the program
      }
      return fmt::format("{} {} is {} there and {} here", section, mine[i].substr(0, equals),
                         theirs[i].substr(equals + 3), mine[i].substr(equals + 3));
    }
    if (mine[i].starts_with('[')) section = mine[i];
  }
  return "";  // as far as both go
}

StartUp::StartUp(comm::World& world, const std::string& values, std::chrono::milliseconds deadline)
    : world_(world),
      values_(values),
      deadline_(deadline),
      store_(world.store()),
      ids_(store_, world.rank(), {.configuration = xxh64(values), .deadline = deadline, .difference = [this](int rank) {
                                    return rank == 0 ? first_difference(values_, store_.get(0, kTextKey, deadline_))
                                                     : std::string();
                                  }}) {
  if (world.rank() == 0) store_.put(kTextKey, publishable(values));  // read only by who is refused
  ids_.create({everybody(world)});
}

void StartUp::check_configuration() { ids_.of(everybody(world_)); }

void StartUp::compare_instruction_sets() {
  const int rank = world_.rank();
  const std::string mine(to_string(tensor::cpu_isa()));
  store_.put(kInstructionSetKey, mine);
  store_.commit();
  if (rank == 0) return;
  const std::string first = store_.get(0, kInstructionSetKey, deadline_);
  if (mine == first) return;
  const bool of_same_node = world_.node(rank - 1) == world_.node(rank);
  if (of_same_node && store_.get(rank - 1, kInstructionSetKey, deadline_) == mine) return;  // which has said so
  log::warn("train",
            "{} computes on {}, rank 0 on {}: the bits of results depend on the ranks' places. For one instruction set "
            "on all ranks, set ONEDNN_MAX_CPU_ISA",
            world_.node(rank), mine, first);
}

void StartUp::create_groups(const mesh::Groups& groups) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<comm::Group> mine;
  for (mesh::GroupSpec& spec : groups.of(world_.rank())) mine.push_back({spec.name, spec.id, std::move(spec.ranks)});
  ids_.create(mine);
  for (const comm::Group& group : mine) ids_.of(group);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const comm::StoreCounts& counts = store_.counts();
  log::debug("train", "{} groups of {} in {:.3f} s; the store saw {} puts, {} commits and {} gets of it", mine.size(),
             groups.count(), seconds.count(), counts.puts, counts.commits, counts.gets);
}

}  // namespace ms::train
