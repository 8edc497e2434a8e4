// The state that the notifier keeps between two looks: which events of the spool were sent to whom, and which alerts
// are active. A file that cannot be read or parsed counts as empty: at worst an event is sent twice.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "health/act/spool.h"

namespace ms::notify {

struct Standing {
  health::Event event;  // of the drain
  double ends_wall_s = 0;
  double sent_wall_s = 0;  // the last time
};

struct Outbox {
  std::map<std::string, std::set<std::string>> sent;  // by target: names of events, only of those still in the spool
  std::vector<Standing> standing;

  bool is_sent(const std::string& target, const std::string& name) const;
  void forget_all_but(const std::set<std::string>& names);
};

std::string outbox_json(const Outbox& outbox);
Outbox parse_outbox(const std::string& text);  // empty where it makes no sense

// In the directory, which is made if it is not there; throws Error("file.*").
Outbox load_outbox(const std::string& directory);
void save_outbox(const std::string& directory, const Outbox& outbox);

}  // namespace ms::notify
