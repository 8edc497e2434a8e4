// PyTorch's process groups, as Kineto traces and Flight Recorder dumps name them: by a name that may be the same for
// different groups of one run, a description, and ranks that are told in one place for all.
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

  // The group of this name; `ranks` and `description` where they are told beside it, and empty where they are not.
  Group group(const std::string& name, const std::string& description, const std::vector<int>& ranks) const;
  // The channel over which members of a group send: from one of its ranks to another.
  static Group channel(const Group& group, int from, int to);

  // The largest group: 0, where none has ranks.
  std::size_t largest() const;

 private:
  struct Known {
    std::string description;
    std::vector<int> ranks;
  };
  std::map<std::string, Known> known_;
};

// The rank of the run that `number` means for `self`: it may be one itself, or a place in the group. `sorted`: the
// group's ranks.
int peer_of(const Group& group, const std::vector<int>& sorted, int number, int self);

}  // namespace ms::tracepp
