// The tree that placement.cpp fills: hosts split into tp groups ("cells") under their switches, and how the cells of a
// pipeline stage are taken from it so that they lie near each other. For placement.cpp only. Everything is decided by
// numbers and by the order in which hosts were listed: the same in, the same out.
#pragma once

#include <cstdint>
#include <vector>

#include "mesh/placement.h"

namespace ms::mesh {

using Cell = std::vector<int>;  // the host of every rank of a tp group

// Hosts first, with their own indices, then switches, then the switch above all.
class SwitchTree {
 public:
  explicit SwitchTree(const Cluster& cluster);

  int meet(int a, int b) const;  // the level at which two hosts meet
  int levels() const { return vertices_[root_].level + 1; }

  // Whole tp groups, and no more of those that span hosts than it takes to have `wanted` cells.
  void cut(const Cluster& cluster, int tp, std::int64_t wanted);
  // The lowest vertex with room for `cells`, of several the smallest.
  int smallest_with(int cells) const;
  // Takes the cells of one stage after the other, and has them in the order of the walk.
  std::vector<std::vector<Cell>> fill(int within, int stages, int cells_each);
  // The first cells, host by host in a walk of the tree.
  std::vector<Cell> walk(int cells) const;
  int root() const { return static_cast<int>(root_); }

 private:
  struct Vertex {
    int above = -1;
    int level = 0;
    int position = 0;  // in a walk of the tree
    std::vector<int> below = {};
    std::vector<Cell> spanning = {};  // of what has them, and nothing else: cells of several hosts under `above`
    int own = 0;                      // cells of a host, or of `spanning`, that no stage has yet
    int free = 0;                     // the same of the whole subtree
    int size = 1;                     // vertices of the whole subtree
  };

  Vertex& at(int v) { return vertices_[static_cast<std::size_t>(v)]; }
  const Vertex& at(int v) const { return vertices_[static_cast<std::size_t>(v)]; }
  Cell cell(int v, int i) const;
  void set_levels();
  void span_hosts(std::vector<int> left, int tp, std::int64_t missing);
  void count_free();
  int choose(int within, int cells, int previous) const;
  void take(int v, int cells, std::vector<Cell>& out);

  std::vector<Vertex> vertices_;
  std::vector<int> walk_;  // every vertex that has hosts, each before what is below it
  std::size_t root_ = 0;
  int tp_ = 1;
};

}  // namespace ms::mesh
