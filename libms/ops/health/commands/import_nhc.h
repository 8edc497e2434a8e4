// ms-diag import-nhc: the policy that does what the configuration of LBNL Node Health Check does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/cli.h"

namespace ms::health {

struct NhcLine {
  std::size_t number = 0;  // in the file
  std::string text = {};
  enum class Fate { translated, partly, not_translated, other_node } fate = Fate::not_translated;
  std::string why = {};  // what is lost, or which check does it
};

struct NhcImport {
  std::string policy;          // TOML, with every line of the file as a comment
  std::vector<NhcLine> lines;  // without comments and blank lines
  std::size_t lost = 0;        // lines that are translated partly or not
};

// Translates the lines for `node`; empty: those for all nodes. Pure.
NhcImport import_nhc(std::string_view text, const std::string& node);

Command import_nhc_command();

}  // namespace ms::health
