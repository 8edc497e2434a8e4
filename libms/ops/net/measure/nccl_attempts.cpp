#include "net/measure/nccl_attempts.h"

#include <algorithm>

namespace ms::net {
namespace {

// The word behind `mark`; empty: it is not in there.
std::string_view word_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + mark.size());
  return text.substr(0, std::min(text.find(' '), std::size_t{64}));
}

}  // namespace

// NCCL chooses the interface of its bootstrap once a process: "Bootstrap : Using eth0:10.0.0.1<0>".
bool NcclAttempts::begins_new(Lives& of, std::string_view text) {
  const bool begins = text.starts_with("Bootstrap") && text.find(": Using ") != std::string_view::npos;
  const bool is_new = begins && of.has_begun;
  of.has_begun |= begins;
  return is_new;
}

std::size_t NcclAttempts::root_of(std::size_t life) {
  while (lives_[life].parent != life) life = lives_[life].parent = lives_[lives_[life].parent].parent;
  return life;
}

void NcclAttempts::see(std::string_view host, std::string_view process, std::string_view text) {
  ++line_;
  auto found = processes_.find(process);
  if (found == processes_.end()) {
    if (lives_.size() >= kMostProcesses) return;
    found = processes_.emplace(process, Lives{}).first;
  }
  Lives& of = found->second;
  if (begins_new(of, text) || of.lives.empty()) {
    if (lives_.size() >= kMostProcesses) return;
    of.lives.push_back(lives_.size());
    lives_.push_back({.host = std::string(host), .log = log_, .first = line_, .parent = lives_.size()});
  }
  const std::size_t life = of.lives.back();
  lives_[life].last = line_;
  if (!text.ends_with("Init START") || ++opened_ > kMostOpened) return;
  if (const std::string_view gpu = word_behind(text, " busId "); !gpu.empty()) {
    std::vector<std::size_t>& slot = slots_[{std::string(host), std::string(gpu)}];
    if (slot.empty() || slot.back() != life) slot.push_back(life);
    lives_[life].has_gpu = true;
  }
  const std::string_view comm = word_behind(text, " commId ");
  if (comm.empty()) return;
  const auto first = comms_.find(comm);
  if (first == comms_.end()) {
    comms_.emplace(comm, life);
  } else {
    lives_[root_of(life)].parent = root_of(first->second);
  }
}

void NcclAttempts::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  for (auto& [name, of] : processes_) of.has_begun = false;
  std::map<std::uint64_t, std::uint64_t> begins;  // by log: the first line of what took the place of others
  for (const auto& [gpu, slot] : slots_) {
    for (std::size_t i = 1; i < slot.size(); ++i) {
      const Life &before = lives_[slot[i - 1]], &after = lives_[slot[i]];
      if (before.log != after.log || before.last >= after.first || root_of(slot[i - 1]) == root_of(slot[i])) continue;
      lives_[root_of(slot[i - 1])].is_earlier = true;
      std::uint64_t& begin = begins[after.log];
      begin = std::max(begin, after.first);
    }
  }
  std::map<std::size_t, std::size_t> places;  // in earlier_, by root
  for (std::size_t i = 0; i < lives_.size(); ++i) {
    Life& life = lives_[i];
    const auto begin = begins.find(life.log);
    const bool ended_before = !life.has_gpu && begin != begins.end() && life.last < begin->second;
    life.is_earlier |= lives_[root_of(i)].is_earlier || ended_before;
    if (!life.is_earlier || !life.has_gpu) continue;
    const auto [place, is_new] = places.try_emplace(root_of(i), earlier_.size());
    if (is_new) earlier_.emplace_back();
    ++earlier_[place->second].processes;
    earlier_[place->second].hosts.push_back(life.host);
  }
  for (NcclAttempt& it : earlier_) {
    std::ranges::sort(it.hosts);
    it.hosts.erase(std::unique(it.hosts.begin(), it.hosts.end()), it.hosts.end());
  }
}

bool NcclAttempts::is_earlier(std::string_view process, std::string_view text) {
  finish();
  const auto found = processes_.find(process);
  if (found == processes_.end()) return false;
  Lives& of = found->second;
  if (begins_new(of, text) && of.at + 1 < of.lives.size()) ++of.at;
  return lives_[of.lives[of.at]].is_earlier;
}

}  // namespace ms::net
