// Snapshots of counters and facts about nodes as JSON, for messages between nodes and for files.
#pragma once

#include <map>
#include <string>

#include "net/measure/counters.h"
#include "net/measure/fabric_config.h"

namespace ms::net {

std::string to_json(const Snapshot& snapshot);
Snapshot read_snapshot(const std::string& text);  // Error("net.wire", fabric)
// Snapshots of several nodes, by name.
std::string to_json(const std::map<std::string, Snapshot>& snapshots);
std::map<std::string, Snapshot> read_snapshots(const std::string& text);

std::string to_json(const FabricFacts& facts);
FabricFacts read_facts(const std::string& text);  // Error("net.wire", fabric)

}  // namespace ms::net
