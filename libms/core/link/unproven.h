// Connections that have proved nothing yet, by the host they come from, and which of them makes room for a new one: the
// oldest of the host that has most of them. A host that floods a listener thus evicts its own connections.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace ms::link {

class Unproven {
 public:
  using Id = std::uint64_t;  // of a connection; a newer one has a higher id

  void add(Id id, const std::string& host);
  void remove(Id id);  // nothing happens if it is not there
  bool empty() const { return hosts_.empty(); }
  std::size_t size() const { return hosts_.size(); }
  const std::string& host(Id id) const { return hosts_.at(id); }
  // Not to be called while empty.
  Id oldest() const { return hosts_.begin()->first; }
  Id to_evict() const;

 private:
  std::map<Id, std::string> hosts_;
  std::map<std::string, std::set<Id>> by_host_;
};

}  // namespace ms::link
