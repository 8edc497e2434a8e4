// Looks at suspects with ms-diag while the others train: one check at a time on each, in the background.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "driver/command.h"

namespace ms::driver {

struct Checkup {
  std::string node;
  bool well = false;
  bool looked = false;  // ms-diag reported
  std::string said;     // what is critical; of a well node, "is found well" or why it was not checked
};

class Suspects {
 public:
  // `diag`: the program; `dir`: for its output.
  Suspects(std::string diag, std::string dir) : diag_(std::move(diag)), dir_(std::move(dir)) {}

  // Begins, unless it runs or waits; at most kAtATime run.
  void look(const std::string& node, int level);
  bool busy() const;
  // Ends the checks of all other nodes. take() does not return them.
  void keep(const std::function<bool(const std::string& node)>& is_wanted);
  // Those that ended since the last call. A check that could not be made says nothing against the node.
  std::vector<Checkup> take();
  // Gives up all of them.
  void stop();

 private:
  static constexpr std::size_t kAtATime = 64;
  struct Look {
    LongCommand command;
    bool is_wanted = true;
  };
  void begin_waiting();
  std::string file(const std::string& node, const char* suffix) const;
  std::string diag_, dir_;
  std::map<std::string, Look> running_;
  std::deque<std::pair<std::string, int>> waiting_;  // node and level
  std::set<std::string> refused_;                    // nodes whose last check could not begin, which was logged
};

}  // namespace ms::driver
