#include "comm/group_ids.h"

#include "base/hash.h"

namespace ms::comm {
namespace {

// A published value is the hash of the configuration, the hash of the group, and the id.
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kFingerprintDigits = 2 * kHashDigits;

std::string key_of(const Group& group) { return fmt::format("group {}", group.id); }

}  // namespace

std::string GroupIds::fingerprint(const Group& group) const {
  Hasher hasher;
  hasher.update(group.name);
  hasher.update(std::as_bytes(std::span(group.ranks)));
  return hash_hex(options_.configuration) + hash_hex(hasher.digest());
}

void GroupIds::create(const std::vector<Group>& groups) {
  bool any = false;
  for (const Group& group : groups) {
    if (group.ranks.front() != rank_ || ids_.contains(group.id)) continue;
    std::string id = options_.make_id ? options_.make_id() : std::string();
    MS_ASSERT(id.size() <= kMaxGroupIdBytes, "the id of group {} has {} bytes", group.name, id.size());
    if (group.size() > 1) {  // no other member fetches it otherwise
      store_.put(key_of(group), fingerprint(group) + id);
      any = true;
    }
    ids_.emplace(group.id, std::move(id));
  }
  if (any) store_.commit();
}

const std::string& GroupIds::of(const Group& group) {
  if (const auto known = ids_.find(group.id); known != ids_.end()) return known->second;
  MS_ASSERT(group.index_of(rank_) > 0, "rank {} fetches the id of group {}, which it {}", rank_, group.name,
            group.index_of(rank_) == 0 ? "has not created" : "is not a member of");
  const int maker = group.ranks.front();
  const std::string value = store_.get(maker, key_of(group), options_.deadline);
  const std::string mine = fingerprint(group);
  if (value.compare(0, kHashDigits, mine, 0, kHashDigits) != 0) {
    const std::string difference = options_.difference ? options_.difference(maker) : std::string();
    throw user_error("comm.configuration",
                     fmt::format("rank {} was started with another configuration than rank {}{}{}", rank_, maker,
                                 difference.empty() ? "" : ": ", difference),
                     "all ranks of a run need the same settings");
  }
  if (value.compare(0, kFingerprintDigits, mine) != 0) {
    throw user_error("comm.configuration",
                     fmt::format("rank {} and rank {} define group {} differently with the same configuration", rank_,
                                 maker, group.name),
                     "all ranks of a run need the same version of this program");
  }
  return ids_.emplace(group.id, value.substr(kFingerprintDigits)).first->second;
}

}  // namespace ms::comm
