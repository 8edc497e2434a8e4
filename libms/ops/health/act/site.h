// The drains of all nodes of a site, in a directory of root's (0700) on storage that they share: a file "<node>.jsonl"
// for each, with the lines of the node's own history that count. A node that was installed anew keeps its past there,
// and one is seen beside its peers. Storage may hang: nothing around a job waits for it (memory.cpp).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "health/act/state.h"

namespace ms::health {

bool is_shared_event(std::string_view event);  // "drain", "withdrawn", "undrain"

// Both, each entry once, oldest first. What was lost on one side is on the other.
std::vector<HistoryEntry> merged(const std::vector<HistoryEntry>& a, const std::vector<HistoryEntry>& b);

// Merges the shared events of a node's own history into the site's, under a lock. Throws Error("site.write", node).
void share_history(const std::string& directory, const std::string& node, const std::vector<HistoryEntry>& own);

// By node. Throws Error("site.read", user) where the directory is not there or not the caller's own.
std::map<std::string, std::vector<HistoryEntry>> read_site(const std::string& directory);

}  // namespace ms::health
