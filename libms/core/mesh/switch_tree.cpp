#include "mesh/switch_tree.h"

#include <algorithm>
#include <climits>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ms::mesh {

SwitchTree::SwitchTree(const Cluster& cluster) {
  const int hosts = static_cast<int>(cluster.hosts.size());
  const int switches = static_cast<int>(cluster.switches.size());
  root_ = static_cast<std::size_t>(hosts + switches);
  vertices_.resize(root_ + 1);
  const auto above = [&](int under) {
    MS_ASSERT(under >= kNoSwitch && under < switches, "switch {} of {}", under, switches);
    return under == kNoSwitch ? root() : hosts + under;
  };
  for (int s = 0; s < switches; ++s) {
    at(hosts + s).above = above(cluster.switches[static_cast<std::size_t>(s)].under);
    at(hosts + s).level = 1;
  }
  at(root()).level = 1;
  // Children are listed as their first host was, and those without a host not at all.
  std::vector<bool> listed(vertices_.size(), false);
  for (int h = 0; h < hosts; ++h) {
    at(h).above = above(cluster.hosts[static_cast<std::size_t>(h)].under);
    for (int v = h; v != root() && !listed[static_cast<std::size_t>(v)]; v = at(v).above) {
      listed[static_cast<std::size_t>(v)] = true;
      at(at(v).above).below.push_back(v);
    }
  }
  std::vector<int> open{root()};
  while (!open.empty()) {
    const int v = open.back();
    open.pop_back();
    at(v).position = static_cast<int>(walk_.size());
    walk_.push_back(v);
    open.insert(open.end(), at(v).below.rbegin(), at(v).below.rend());
  }
  set_levels();
}

// Sets the level of every vertex above its children, in the tree as given: switches without hosts count too.
void SwitchTree::set_levels() {
  const int limit = static_cast<int>(vertices_.size());
  for (int v = 0; v < limit; ++v) {
    int level = at(v).level;
    for (int up = at(v).above; up >= 0; up = at(up).above) {
      MS_ASSERT(level < limit, "the switches form a circle");
      at(up).level = std::max(at(up).level, ++level);
    }
  }
}

int SwitchTree::meet(int a, int b) const {
  while (a != b) {  // the lower one goes up; cells of several hosts are as high as their switch, and come behind it
    const bool a_is_lower = at(a).level != at(b).level ? at(a).level < at(b).level : at(a).position > at(b).position;
    (a_is_lower ? a : b) = at(a_is_lower ? a : b).above;
  }
  return at(a).level;
}

void SwitchTree::cut(const Cluster& cluster, int tp, std::int64_t wanted) {
  tp_ = tp;
  std::vector<int> left(cluster.hosts.size());
  for (std::size_t h = 0; h < left.size(); ++h) {
    vertices_[h].own = cluster.hosts[h].slots / tp;
    left[h] = cluster.hosts[h].slots % tp;
    wanted -= vertices_[h].own;
  }
  if (wanted > 0) span_hosts(std::move(left), tp, wanted);
  count_free();
}

// Largest rests first, so that a group spans few hosts; the last one is the smallest that suffices.
void SwitchTree::span_hosts(std::vector<int> left, int tp, std::int64_t missing) {
  std::vector<int> by_level(walk_);
  std::stable_sort(by_level.begin(), by_level.end(), [&](int a, int b) { return at(a).level < at(b).level; });
  using Rest = std::tuple<int, int, int>;  // slots, minus the position, host
  std::vector<std::vector<Rest>> rests(vertices_.size());
  for (const int v : by_level) {
    if (static_cast<std::size_t>(v) < left.size()) {  // a host
      const int slots = left[static_cast<std::size_t>(v)];
      if (slots > 0) rests[static_cast<std::size_t>(at(v).above)].emplace_back(slots, -at(v).position, v);
      continue;
    }
    auto& here = rests[static_cast<std::size_t>(v)];
    std::set<Rest> pool(here.begin(), here.end());
    std::int64_t slots = 0;
    for (const Rest& rest : pool) slots += std::get<0>(rest);
    std::vector<Cell> cells;
    for (; missing > 0 && slots >= tp; slots -= tp, --missing) {
      Cell& cell = cells.emplace_back();
      while (static_cast<int>(cell.size()) < tp) {
        const int need = tp - static_cast<int>(cell.size());
        auto best = pool.lower_bound({need, INT_MIN, INT_MIN});
        if (best != pool.end()) best = pool.upper_bound({std::get<0>(*best), INT_MAX, INT_MAX});
        const auto [rest, position, host] = *--best;
        pool.erase(best);
        const int used = std::min(rest, need);
        cell.insert(cell.end(), static_cast<std::size_t>(used), host);
        if (rest > used) pool.emplace(rest - used, position, host);
      }
    }
    if (v != root()) {
      auto& up = rests[static_cast<std::size_t>(at(v).above)];
      up.insert(up.end(), pool.begin(), pool.end());
    }
    here.clear();
    if (cells.empty()) continue;
    const int bundle = static_cast<int>(vertices_.size());
    vertices_.push_back({.above = v, .level = at(v).level});
    vertices_.back().own = static_cast<int>(cells.size());
    vertices_.back().spanning = std::move(cells);
    rests.emplace_back();
    at(v).below.push_back(bundle);
    walk_.insert(walk_.begin() + at(v).position + 1, bundle);
    for (std::size_t i = 0; i < walk_.size(); ++i) at(walk_[i]).position = static_cast<int>(i);
  }
}

Cell SwitchTree::cell(int v, int i) const {
  if (!at(v).spanning.empty()) return at(v).spanning[static_cast<std::size_t>(i)];
  return Cell(static_cast<std::size_t>(tp_), v);
}

void SwitchTree::count_free() {
  for (auto v = walk_.rbegin(); v != walk_.rend(); ++v) {
    at(*v).free += at(*v).own;
    if (*v == root()) continue;
    at(at(*v).above).free += at(*v).free;
    at(at(*v).above).size += at(*v).size;
  }
}

int SwitchTree::smallest_with(int cells) const {
  int found = root();
  for (const int v : walk_) {
    if (at(v).free < cells) continue;
    if (std::pair(at(v).level, at(v).free) < std::pair(at(found).level, at(found).free)) found = v;
  }
  return found;
}

// The lowest place for one more stage; of several the one that leaves least over when filled with stages, then the one
// nearest to the stage before, then the smallest, then the first.
int SwitchTree::choose(int within, int cells, int previous) const {
  int found = -1;
  std::tuple<int, int, int, int> best;
  const auto begin = walk_.begin() + at(within).position;
  for (auto v = begin; v != begin + at(within).size; ++v) {
    if (at(*v).free < cells) continue;
    const int distance = previous < 0 ? 0 : meet(previous, *v);
    const std::tuple key(at(*v).level, at(*v).free % cells, distance, at(*v).free);
    if (found < 0 || key < best) {
      found = *v;
      best = key;
    }
  }
  MS_ASSERT(found >= 0, "no place for {} cells", cells);
  return found;
}

void SwitchTree::take(int v, int cells, std::vector<Cell>& out) {
  Vertex& here = at(v);
  here.free -= cells;
  const int own = std::min(cells, here.own);
  for (int i = 0; i < own; ++i) out.push_back(cell(v, --here.own));
  for (cells -= own; cells > 0;) {
    // Takes the smallest child that holds all; if there is none, the largest. Ties go to the lowest level.
    int next = -1;
    std::tuple<bool, int, int> best;
    for (const int child : here.below) {
      const int free = at(child).free;
      if (free == 0) continue;
      const std::tuple key(free < cells, free < cells ? -free : free, at(child).level);
      if (next < 0 || key < best) {
        next = child;
        best = key;
      }
    }
    const int part = std::min(cells, at(next).free);
    take(next, part, out);
    cells -= part;
  }
}

std::vector<std::vector<Cell>> SwitchTree::fill(int within, int stages, int cells_each) {
  std::vector<std::vector<Cell>> filled;
  int previous = -1;
  for (int s = 0; s < stages; ++s) {
    previous = choose(within, cells_each, previous);
    take(previous, cells_each, filled.emplace_back());
    for (int up = at(previous).above; up >= 0; up = at(up).above) at(up).free -= cells_each;
  }
  std::stable_sort(filled.begin(), filled.end(), [&](const auto& a, const auto& b) {
    return at(a.front().front()).position < at(b.front().front()).position;
  });
  return filled;
}

std::vector<Cell> SwitchTree::walk(int cells) const {
  std::vector<Cell> out;
  for (const int v : walk_) {
    for (int i = 0; i < at(v).own && std::ssize(out) < cells; ++i) out.push_back(cell(v, i));
  }
  return out;
}

}  // namespace ms::mesh
