// How the groups of a run come to be: the first member of each publishes an id in the store, the others fetch it when
// they need it. Every group costs one value and one question of each other member, so that all groups of a mesh take
// O(ranks) messages, and nobody meets anybody: what torch.distributed pays most for, a barrier of all ranks after each
// group, has nothing to wait for where all ranks know all groups beforehand, in one order.
//
// A published value also says what its maker was started with, so that ranks that do not belong together find out
// before their first operation, by name.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/store.h"

namespace ms::comm {

inline constexpr std::size_t kMaxGroupIdBytes = 128;  // NCCL's has as many

struct StoreCounts {
  std::int64_t puts = 0, commits = 0, gets = 0;
  std::int64_t barriers = 0;  // of all ranks; none here, counted for whoever compares

  std::int64_t operations() const { return puts + commits + gets; }
};

// Passes everything on, and counts it.
class CountedStore final : public Store {
 public:
  explicit CountedStore(Store& store) : store_(store) {}
  const StoreCounts& counts() const { return counts_; }
  void count_barrier() { ++counts_.barriers; }

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
    std::uint64_t configuration = 0;     // the same on ranks that belong together
    std::chrono::milliseconds deadline;  // for each id that is fetched
    // Makes what a communicator library wants to be told of a new group, on one rank; absent: nothing.
    std::function<std::string()> make_id = {};
    // In what this rank's configuration differs from that of another rank, for the refusal; may be empty or absent.
    std::function<std::string(int)> difference = {};
  };
  GroupIds(Store& store, int rank, Options options) : store_(store), rank_(rank), options_(std::move(options)) {}

  // Publishes the ids of those of `groups` that begin with this rank; waits for nobody. Every rank calls it for all its
  // groups, in any portions; more groups, of whatever ranks, do no harm.
  void create(const std::vector<Group>& groups);
  // The id of a group that this rank is a member of. The first time it is fetched, which waits until it is published.
  // Throws Error("comm.configuration", user) where the first member has another configuration or another such group.
  const std::string& of(const Group& group);

 private:
  std::string fingerprint(const Group& group) const;

  Store& store_;
  int rank_;
  Options options_;
  std::map<int, std::string> ids_;  // by the group's id
};

}  // namespace ms::comm
