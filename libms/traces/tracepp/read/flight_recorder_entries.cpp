#include "tracepp/read/flight_recorder_entries.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/number.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

using GroupKey = std::pair<std::string, std::int64_t>;

std::string_view backend_of(const RecorderEntry& entry) {
  return std::string_view(entry.operation).substr(0, entry.operation.find(':'));
}

bool is_transfer(const RecorderEntry& entry) { return trace::is_point_to_point(comm_kind(entry.operation)); }

bool closes_batch(const RecorderEntry& entry) {
  const auto is_empty = [](const std::string& sizes) { return sizes.find_first_of("0123456789") == std::string::npos; };
  return entry.operation.ends_with("coalesced") && is_empty(entry.input_sizes) && is_empty(entry.output_sizes);
}

bool is_numbered_alike(const RecorderEntry& a, const RecorderEntry& b) {
  return a.sequence == b.sequence && a.p2p_sequence == b.p2p_sequence;
}

void add_tensors(RecorderEntry& to, const RecorderEntry& from) {
  to.input_sizes += from.input_sizes;
  to.output_sizes += from.output_sizes;
  to.input_types += from.input_types;
  to.output_types += from.output_types;
}

void forget_sizes(RecorderEntry& entry) {
  entry.input_sizes.clear();
  entry.output_sizes.clear();
}

}  // namespace

void drop_unfinished(std::vector<RecorderEntry>& entries) {
  if (entries.empty()) return;
  const RecorderEntry& last = entries.back();
  if (last.state.empty() || (entries.size() > 1 && last.last_field != entries[entries.size() - 2].last_field))
    entries.pop_back();
}

void fold_batches(std::vector<RecorderEntry>& entries) {
  struct Recent {
    std::vector<std::size_t> calls;  // the newest of the group that may belong to a batch
    std::int64_t sequence = 0, p2p_sequence = 0;
  };
  std::map<GroupKey, Recent> groups;
  std::vector<char> is_dropped(entries.size(), 0);
  int batches = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    RecorderEntry& entry = entries[i];
    Recent& recent = groups[{entry.group, entry.group_id}];
    std::vector<std::size_t>& calls = recent.calls;
    if (!calls.empty() && !is_numbered_alike(entries[calls.back()], entry)) calls.clear();
    if (!closes_batch(entry)) {
      if (entry.state == "scheduled" && !entry.is_retired) {
        calls.push_back(i);
      } else {
        calls.clear();
      }
    } else if (calls.empty()) {
      // The number of a batch of sends and recvs repeats that of the last collective.
      entry.is_p2p |= entry.sequence == recent.sequence && entry.p2p_sequence > recent.p2p_sequence;
    } else {
      is_dropped[i] = 1;
      RecorderEntry* collective = nullptr;
      for (const std::size_t call : calls) {
        RecorderEntry& it = entries[call];
        it.batch = batches;
        it.state = entry.state;
        it.is_retired = entry.is_retired;
        it.started_ns = entry.started_ns;
        it.completed_ns = entry.completed_ns;
        if (is_transfer(it)) continue;
        if (collective == nullptr) {
          collective = &it;
          continue;
        }
        is_dropped[call] = 1;
        if (collective->operation != it.operation) collective->operation = entry.operation;
        add_tensors(*collective, it);
      }
      if (collective != nullptr && calls.front() == 0 && entries[0].record > 0) forget_sizes(*collective);
      ++batches;
      calls.clear();
    }
    recent.sequence = entry.sequence;
    recent.p2p_sequence = std::max(recent.p2p_sequence, entry.p2p_sequence);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (is_dropped[i] == 0 && kept++ != i) entries[kept - 1] = std::move(entries[i]);
  entries.resize(kept);
}

void end_unlisted(std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses) {
  if (std::ranges::any_of(entries, [](const RecorderEntry& it) { return it.state == "completed"; })) return;
  for (std::size_t i = entries.size(); i-- > 0;) {
    RecorderEntry& entry = entries[i];
    if (entry.state != "scheduled" || entry.record < 0 || !is_transfer(entry)) continue;
    if (i + 1 == entries.size()) {
      const auto status = statuses.find(entry.group_id);
      if (status != statuses.end() && status->second.completed == entry.p2p_sequence) entry.state = "completed";
      continue;
    }
    const RecorderEntry& next = entries[i + 1];
    const bool is_one_batch = next.group_id == entry.group_id && is_transfer(next) && is_numbered_alike(next, entry);
    if (next.record != entry.record + 1 || (is_one_batch && next.state == "completed")) entry.state = "completed";
  }
}

bool find_ended(std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses) {
  // A recorder that watches events discovers when operations complete, and one that it retires before failed.
  std::set<std::string, std::less<>> watching{"nccl"};
  for (const RecorderEntry& it : entries)
    if (it.completed_ns > 0 || it.started_ns > 0 || it.state == "started") watching.emplace(backend_of(it));
  std::map<std::int64_t, std::int64_t> newest;  // by group id
  std::set<std::int64_t> has_transfers;
  for (const RecorderEntry& it : entries) {
    if (is_transfer(it) || it.is_p2p) has_transfers.insert(it.group_id);
    newest[it.group_id] = std::max(newest.try_emplace(it.group_id, -1).first->second, it.sequence);
  }
  bool may_have_failed = false;
  for (RecorderEntry& it : entries) {
    const bool watches = watching.contains(backend_of(it));
    may_have_failed |= it.is_retired && !watches;
    if (it.state == "completed") continue;
    const auto status = statuses.find(it.group_id);
    const bool counted = status != statuses.end() && !has_transfers.contains(it.group_id) &&
                         status->second.enqueued == newest[it.group_id] && it.sequence >= 0 &&
                         it.sequence <= status->second.completed;
    if (counted || (it.is_retired && !watches)) it.state = "completed";
  }
  return may_have_failed;
}

void find_begun(std::vector<RecorderEntry>& entries) {
  std::set<std::string, std::less<>> showing;  // backends
  for (const RecorderEntry& it : entries)
    if (it.state == "started" || (it.started_ns > 0 && it.started_ns != it.completed_ns))
      showing.emplace(backend_of(it));
  std::map<std::string, int, std::less<>> begun;  // by backend: the batch of the first open operation
  for (RecorderEntry& it : entries) {
    if (it.state != "scheduled" || showing.contains(backend_of(it))) continue;
    const auto [first, is_new] = begun.try_emplace(std::string(backend_of(it)), it.batch);
    if (is_new || (it.batch >= 0 && it.batch == first->second)) it.state = "started";
  }
}

bool is_of_torchcomms(const std::vector<RecorderEntry>& entries) {
  return !entries.empty() &&
         std::ranges::all_of(entries, [](const RecorderEntry& it) { return it.description == backend_of(it); });
}

void end_retired(std::vector<RecorderEntry>& entries) {
  for (RecorderEntry& it : entries) {
    if (it.is_retired) {
      it.state = "completed";
    } else if (it.state == "completed") {
      it.state = "started";
      it.completed_ns = 0;
    }
  }
}

bool counts_process(const std::vector<RecorderEntry>& entries) {
  if (is_of_torchcomms(entries)) return true;
  const auto offset = [](const RecorderEntry& it) { return it.sequence - it.record; };
  const bool is_one_sequence = std::ranges::all_of(entries, [&](const RecorderEntry& it) {
    return it.record >= 0 && it.sequence >= 0 && it.p2p_sequence <= 0 && offset(it) == offset(entries.front());
  });
  if (!is_one_sequence) return false;
  // A number of a group skips none by itself, so that a skip counts the calls between.
  std::map<GroupKey, std::size_t> newest;  // collective, by group
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (is_transfer(entries[i])) continue;
    const auto [last, is_first] = newest.try_emplace({entries[i].group, entries[i].group_id}, i);
    const std::size_t calls = i - last->second;
    if (calls > 1 && entries[i].record - entries[last->second].record == static_cast<std::int64_t>(calls)) return true;
    last->second = i;
  }
  return false;
}

bool lacks_entries(const std::vector<RecorderEntry>& entries, const RecorderStatuses& statuses, bool of_process) {
  if (entries.empty()) return std::ranges::any_of(statuses, [](const auto& it) { return it.second.enqueued > 0; });
  std::int64_t next = 0;
  std::set<GroupKey> known;
  for (const RecorderEntry& it : entries) {
    if (it.record >= 0 && it.record != next++) return true;
    const bool is_first = of_process ? &it == &entries.front() : known.emplace(it.group, it.group_id).second;
    if (is_first && !is_transfer(it) && !it.is_p2p && it.sequence > 1) return true;
  }
  return false;
}

std::map<std::string, std::int64_t> newest_numbers(const std::vector<RecorderEntry>& entries,
                                                   const RecorderStatuses& statuses, std::vector<std::string> names) {
  std::map<std::int64_t, std::string> by_id;
  std::set<std::string> has_transfers;
  for (const RecorderEntry& it : entries) {
    by_id.try_emplace(it.group_id, it.group);
    if (is_transfer(it) || it.is_p2p) has_transfers.insert(it.group);
  }
  // Groups have ids and, by default, names in the order in which they were made.
  const bool ordered =
      std::ranges::all_of(names, [](const std::string& name) { return whole_number<std::int64_t>(name).has_value(); });
  std::ranges::sort(names, {}, [](const std::string& name) { return whole_number<std::int64_t>(name).value_or(0); });
  const auto place = [&](std::int64_t id) {
    return ordered && id >= 0 && static_cast<std::size_t>(id) < names.size() ? names[static_cast<std::size_t>(id)] : "";
  };
  const bool agrees = std::ranges::all_of(by_id, [&](const auto& it) { return place(it.first) == it.second; });
  std::map<std::string, std::int64_t> newest;
  for (const auto& [id, status] : statuses) {
    const auto known = by_id.find(id);
    const std::string name = known != by_id.end() ? known->second : agrees ? place(id) : "";
    if (!name.empty() && !has_transfers.contains(name) && status.enqueued > 0) newest[name] = status.enqueued;
  }
  return newest;
}

}  // namespace ms::tracepp
