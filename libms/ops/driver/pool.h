// The nodes of an allocation and what each is for. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ms::driver {

enum class NodeRole {
  spare,     // ready to work
  works,     // in the attempt that runs
  suspect,   // did not do well, or was away: looked at; works only if no other node is left
  lost,      // does not answer
  unusable,  // Slurm starts nothing on it, though it may answer
  excluded,  // out for good, with a reason
};
std::string_view to_string(NodeRole role);
// Why a node is excluded that the job gives back.
inline constexpr const char* kAskedBack = "asked back";

// Whether a suspect that nothing accuses and nothing clears is left out: at its second strike, while others can work.
// `usable`: nodes that may work, it among them; `needed`: nodes at work.
bool is_out_without_evidence(int strikes, std::size_t usable, std::size_t needed);

// The segments of an attempt: so many nodes each, all in one block of the topology (a rack with NVLink, or a leaf
// switch). A node without a block is in no segment.
struct Segments {
  std::size_t nodes = 0;  // of each; 0: nodes are chosen one by one
  std::map<std::string, int, std::less<>> block_of;
};

class Pool {
 public:
  // `last`: nodes that are chosen after the others, and so are the spares: Slurm keeps them for last.
  explicit Pool(std::vector<std::string> nodes, std::set<std::string> last = {}, Segments segments = {});

  struct Node {
    NodeRole role = NodeRole::spare;
    int strikes = 0;
    std::string why;  // of those that are out, and suspects
  };

  // Chooses up to `most` nodes for an attempt, in the order of the allocation: those that worked before, then spares,
  // then suspects, the least struck first, and of these
  // those that are not kept for last. Of segments, whole ones: those with the most nodes that worked before come first.
  // nullopt: fewer than `least`. The chosen work afterwards.
  std::optional<std::vector<std::string>> choose(std::size_t most, std::size_t least);
  // Whether as many nodes as work can work without these, by spares.
  bool can_replace(const std::vector<std::string>& nodes) const;
  // Whether so many can work without suspects.
  bool has_others(std::size_t working) const { return pick(ranked(NodeRole::spare), working).size() == working; }
  // From now on these are chosen after all others, unless they work: it is not known whether they are there.
  void doubt(std::set<std::string> nodes) { doubted_ = std::move(nodes); }

  void remember(const std::string& node, int strikes);  // of an earlier start of the job
  void exclude(const std::string& node, const std::string& why);
  void lose(const std::string& node, const std::string& why);     // a strike
  void suspect(const std::string& node, const std::string& why);  // a strike
  void say(const std::string& node, const std::string& why);      // of one that works, and keeps working
  void bar(const std::string& node, const std::string& why);      // unusable from now on; a strike
  void unbar(const std::string& node);                            // Slurm takes it again: a suspect
  void found(const std::string& node);                            // a lost one answers again: a suspect
  void readmit(const std::string& node);                          // one that was out for good: a suspect
  void clear(const std::string& node);                            // a suspect was found well: a spare
  const std::map<std::string, Node>& nodes() const { return nodes_; }
  void work(const std::vector<std::string>& nodes);  // they do, in the attempt that runs
  std::vector<std::string> with(NodeRole role) const;
  std::size_t usable() const;                 // that are not left out
  std::vector<std::string> left_out() const;  // lost, unusable and excluded, each with why

 private:
  std::vector<std::string> ranked(NodeRole worst) const;  // the order of choose(), up to this role
  std::vector<std::string> pick(std::vector<std::string> ranked, std::size_t most) const;
  void strike(const std::string& name, NodeRole role, const std::string& why);
  void change(const std::string& name, NodeRole from, NodeRole to);

  std::vector<std::string> order_;
  std::set<std::string> last_, doubted_;
  Segments segments_;
  std::map<std::string, Node> nodes_;
};

}  // namespace ms::driver
