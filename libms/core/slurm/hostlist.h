// Hostlists as Slurm writes them: "login,node[01-04,07]-ib". Pure functions; what scontrol show hostnames and hostlist
// do, without asking. Several brackets in a name are allowed, widths of numbers are kept.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::slurm {

inline constexpr std::size_t kMaxHosts = 65536;  // a list that names more is refused: no range may eat the memory

// The hosts in the order of the text, duplicates kept; an empty text has none. nullopt where it is no hostlist.
std::optional<std::vector<std::string>> expand_hostlist(std::string_view text);
// The same, but Error("slurm.hostlist", user) that shows the text.
std::vector<std::string> expand_hostlist_or_throw(std::string_view text);

// Sorted, without duplicates, numbers at the end of names in brackets: {"n2", "n1", "n3", "x"} -> "n[1-3],x". Only
// there, because Slurm refuses text behind a bracket.
std::string fold_hostlist(std::span<const std::string> hosts);

// Whether the text is one plain host name: letters, digits, '-', '_', '.', at most 253 of them.
bool is_host_name(std::string_view text);

}  // namespace ms::slurm
