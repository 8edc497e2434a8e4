// How many nodes a run has: the sizes that it may have, how many are wanted, and which nodes are asked back. Asks
// ms-train for the sizes; decides, and does nothing to the run or the job.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/launch.h"
#include "driver/options.h"
#include "driver/pool.h"
#include "driver/shrink.h"

namespace ms::driver {

class Sizes {
 public:
  // `options` outlive it. `given_back`: nodes that were asked back from an earlier driver of the job.
  Sizes(const DriverOptions& options, std::set<std::string> given_back);

  // Asks ms-train what sizes the run may have; takes a part of a second.
  void ask();
  // With whole segments a run has one size.
  bool is_elastic() const { return options_.segments.nodes == 0 && sizes_ && (sizes_->is_auto || options_.shrink); }
  // How the comment of an elastic run's job begins, for ms-loan; empty: it is none.
  std::string comment() const;
  // Nodes that were asked back: out of the job or on their way.
  const std::set<std::string>& given_back() const { return given_back_; }
  void give_back(const std::string& node) { given_back_.insert(node); }  // which is out of the pool

  struct Start {
    LaunchSpec launch;
    std::vector<std::string> nodes;  // that work now; empty: too few are left
    std::string too_few;             // why
  };
  // Chooses size and nodes of the next attempt: where the run has one size and nodes are too few, a smaller one, if
  // that is wanted and possible.
  Start choose(Pool& pool);

  struct Answer {
    std::string said;        // to whoever asked; empty: what is asked for can be done
    bool continues = false;  // the run saves, and continues with another size
  };
  // `idle`: nodes that the job could have more, `working`: those at work now.
  Answer grow(std::size_t idle, std::size_t working) const;
  Answer resize(std::size_t nodes, std::size_t usable, std::size_t working);
  // Takes nodes from the pool that are asked back. Empty `said`: they are in `taken`, and `continues` if one works.
  Answer give_back(const std::vector<std::string>& nodes, Pool& pool, std::vector<std::string>& taken);

 private:
  std::size_t least() const;                // nodes of which all have work; 0: there is no such number
  std::vector<std::size_t> of_job() const;  // up to --max-nodes, of which all nodes have work or are spares
  std::optional<RunFit> fit(std::size_t nodes) const;

  const DriverOptions& options_;
  std::optional<RunSizes> sizes_;
  std::optional<std::map<int, double>> speeds_;  // by dp; nullopt: not asked for yet
  std::size_t most_nodes_ = 0;                   // that a person wants; 0: all but the spares
  std::set<std::string> given_back_;
};

}  // namespace ms::driver
