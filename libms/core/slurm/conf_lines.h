// The lines of slurm.conf, gres.conf and topology.conf, as Slurm reads them: without comments, continued by a backslash
// at the end, with the lines of included files in the place of "Include FILE". A word is as in Key=value, also where it
// was written as Key = "value".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::slurm {

struct ConfLine {
  int number = 0;  // of its first line in the outermost file, from 1
  std::vector<std::string> words;
};

// The text of an included file, whose name is as it was written; nullopt: it cannot be read, then it has no lines.
using ReadIncluded = std::function<std::optional<std::string>(const std::string& name)>;

// Pure but for `read`; without one, includes have no lines. Lines without words are left out.
std::vector<ConfLine> conf_lines(std::string_view text, const ReadIncluded& read = {});

// As Slurm resolves an included name: relative to the directory of the file `path`.
std::string included_path(const std::string& path, const std::string& name);

// In lower case: Slurm does not tell keys apart by case.
std::string lower_case(std::string_view text);

}  // namespace ms::slurm
