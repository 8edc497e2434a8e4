// Creation of a run's groups: the first member of each group publishes an id in the store, and the other members fetch
// it when they need it. Each group costs one value and one lookup per other member, O(ranks) store operations for all
// groups of a mesh, and no barrier: all ranks know all groups beforehand and in one order, so the barrier after each
// group that torch.distributed needs is unnecessary.
//
// A published value also contains hashes of the first member's configuration and group, so that ranks started with
// different settings are detected, by name, before their first operation.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/store.h"

namespace ms::comm {

inline constexpr std::size_t kMaxGroupIdBytes = 128;  // the size of ncclUniqueId

struct StoreCounts {
  std::int64_t puts = 0, commits = 0, gets = 0;

  std::int64_t operations() const { return puts + commits + gets; }
};

// Forwards to another store and counts the operations.
class CountedStore final : public Store {
 public:
  explicit CountedStore(Store& store) : store_(store) {}
  const StoreCounts& counts() const { return counts_; }

  void put(std::string_view key, std::string_view value) override {
    ++counts_.puts;
    store_.put(key, value);
  }
  void commit() override {
    ++counts_.commits;
    store_.commit();
  }
  std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    ++counts_.gets;
    return store_.get(rank, key, deadline);
  }

 private:
  Store& store_;
  StoreCounts counts_;
};

class GroupIds {
 public:
  struct Options {
    std::uint64_t configuration = 0;     // hash; the same on all ranks of a run
    std::chrono::milliseconds deadline;  // for each id that is fetched
    // Creates the id that a communicator library needs for a new group, on one rank; absent: empty ids.
    std::function<std::string()> make_id = {};
    // Describes how this rank's configuration differs from that of another rank, for the error message; may return ""
    // or be absent.
    std::function<std::string(int)> difference = {};
  };
  GroupIds(Store& store, int rank, Options options) : store_(store), rank_(rank), options_(std::move(options)) {}

  // Publishes the ids of those of `groups` whose first member is this rank; does not wait. Every rank calls it for all
  // its groups, in any number of calls; groups of other ranks are ignored.
  void create(const std::vector<Group>& groups);
  // Returns the id of a group that this rank is a member of. The first call fetches it and waits until it is published.
  // Throws Error("comm.configuration", user) if the first member has a different configuration or defines the group
  // differently.
  const std::string& of(const Group& group);

 private:
  std::string fingerprint(const Group& group) const;

  Store& store_;
  int rank_;
  Options options_;
  std::map<int, std::string> ids_;  // by the group's id
};

}  // namespace ms::comm
