// Manual pages, as mdoc text, from the same tables that drive the programs: command lines (section 1), configuration
// keys (section 5), exit codes (section 7). cmake/ms_man.cmake runs the tools with --man to build the pages. What is
// written here passes "mandoc -Tlint -Wwarning".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/cli.h"
#include "base/config.h"

namespace ms::man {

// NAME(1): usage, commands with their arguments and options, environment, exit status, examples.
std::string tool_page(const Tool& tool);

// NAME(5): every key of every section, from ConfigSchema::reference(). `description` comes before what is true of every
// such file.
struct ConfigPage {
  std::string name;  // "ms.toml"
  std::string summary;
  std::string description;
  std::vector<std::string> see_also = {};
};
std::string config_page(const ConfigPage& page, std::span<const ConfigRow> rows);

// Such a file as TOML, to begin with: every key with its default and all that NAME(5) says of it, commented out.
std::string sample_config(const ConfigPage& page, std::span<const ConfigRow> rows);

// NAME(7): tagged paragraphs under headings.
struct TopicItem {
  std::string tag;
  std::string text;  // paragraphs, separated by empty lines
};
struct TopicSection {
  std::string title;
  std::string text;
  std::vector<TopicItem> items = {};
};
struct TopicPage {
  std::string name;  // "ms-checks"
  std::string summary;
  std::string description;
  std::vector<TopicSection> sections = {};
  std::vector<std::string> see_also = {};
};
std::string topic_page(const TopicPage& page);

// ms-exit(7), from kExitCodes.
std::string exit_page();

}  // namespace ms::man
