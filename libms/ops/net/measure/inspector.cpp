#include "net/measure/inspector.h"

#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

constexpr std::size_t kLongestText = 128;
constexpr int kMostRanks = 1 << 20;

// The index of a key in a list that it is added to where it is new.
template <class List, class Key>
int index_of(std::map<Key, int>& index, List& list, const Key& key, typename List::value_type value) {
  const auto [found, is_new] = index.try_emplace(key, static_cast<int>(list.size()));
  if (is_new) list.push_back(std::move(value));
  return found->second;
}

std::string name_of(const Json& of, std::string_view key) {
  const Json* name = of.find(key);
  return name != nullptr && name->is_string() ? name->text().substr(0, kLongestText) : std::string();
}

}  // namespace

std::int64_t InspectorLog::read(std::istream& in) {
  const std::size_t before = ops_.size();
  std::string line;
  while (std::getline(in, line)) {
    const std::string_view text = trim(line);
    if (!text.empty() && !is_cut_ && (text.size() > kLongestLine || !take(text))) ++bad_lines_;
  }
  return static_cast<std::int64_t>(ops_.size() - before);
}

bool InspectorLog::take(std::string_view line) {
  const std::optional<Json> json = Json::try_parse(line);
  if (!json) return false;
  try {
    const Json &header = json->at("header"), &metadata = json->at("metadata");
    const Json* collective = json->find("coll_perf");
    const bool is_pair = collective == nullptr;
    const std::string prefix = is_pair ? "p2p" : "coll";
    const Json& of = is_pair ? json->at("p2p_perf") : *collective;
    InspectorOp op{.rank = header.get<int>("rank"),
                   .peer = is_pair ? of.get<int>("p2p_peer") : -1,
                   .number = of.get<std::int64_t>(prefix + "_sn"),
                   .size_bytes = of.get<std::int64_t>(prefix + "_msg_size_bytes"),
                   .time_us = of.get<double>(prefix + "_exec_time_us"),
                   .bus_gbs = of.get<double>(prefix + "_busbw_gbs"),
                   .is_gpu_time = name_of(of, prefix + "_timing_source") == "kernel_gpu"};
    const int ranks = header.get<int>("n_ranks"), nodes = header.get<int>("nnodes");
    const std::string id = name_of(header, "id"), kind = name_of(of, prefix);
    if (id.empty() || kind.empty() || ranks < 1 || ranks > kMostRanks || op.rank < 0 || op.rank >= ranks) return false;
    if (op.size_bytes < 0 || !(op.time_us >= 0) || !(op.bus_gbs >= 0) || !std::isfinite(op.bus_gbs)) return false;
    if (ops_.size() >= kMostOps) {
      is_cut_ = true;
      return true;
    }
    const InspectorProcess process{.host = name_of(metadata, "hostname"), .pid = metadata.get<std::int64_t>("pid")};
    op.kind = index_of(kind_index_, kinds_, kind, kind);
    op.comm = index_of(comm_index_, comms_, id,
                       {.id = id, .name = name_of(header, "comm_name"), .ranks = ranks, .nodes = nodes});
    comms_[static_cast<std::size_t>(op.comm)].processes[op.rank] =
        index_of(process_index_, processes_, process, process);
    ops_.push_back(op);
    return true;
  } catch (const JsonError&) { return false; }
}

}  // namespace ms::net
