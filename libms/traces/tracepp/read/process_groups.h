// PyTorch's process groups, as Kineto traces and Flight Recorder dumps identify them: by a name that different groups
// of one run may share, a description, and ranks that are listed once per file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

class ProcessGroups {
 public:
  void add(const std::string& name, const std::string& description, const std::vector<int>& ranks);

  // Returns the group of this name; `ranks` and `description` if the event itself has them, else empty.
  ProcessGroup group(const std::string& name, const std::string& description, const std::vector<int>& ranks) const;
  // Returns the description in the name of a group that was made here; empty: it has none.
  static std::string_view description(const ProcessGroup& group);
  std::vector<std::string> names() const;  // of those with ranks
  // Returns the group whose members all groups share; nullopt: there are others, or none is known.
  std::optional<ProcessGroup> sole() const;
  // Returns the channel of a transfer between members of a group: from one of its ranks to another.
  static ProcessGroup channel(const ProcessGroup& group, int from, int to);

  // Returns the size of the largest group with a name; 0: none has ranks. Gloo's dumps list one group without a name:
  // the newest.
  std::size_t largest() const;

 private:
  struct Known {
    std::string description;
    std::vector<int> ranks;
  };
  std::map<std::string, Known> known_;
};

// Returns the rank of the run that `number` means for `self`: it may be a rank itself, or an index in the group.
// `sorted`: the group's ranks.
int peer_of(const ProcessGroup& group, const std::vector<int>& sorted, int number, int self);

}  // namespace ms::tracepp
