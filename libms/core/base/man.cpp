#include "base/man.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/exit.h"
#include "base/text.h"
#include "base/tool_exits.h"
#include "base/version.h"

namespace ms::man {
namespace {

// Text that roff leaves as it is.
std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else {
      result += c;
    }
  }
  return result;
}

// A line of text: a dot or quote in front would make it a request.
std::string text_line(std::string_view text) {
  const bool request = text.starts_with('.') || text.starts_with('\'');
  return (request ? "\\&" : "") + escape(text) + "\n";
}

// A line of a snippet to copy: its quotes, dashes, carets and tildes stay the ASCII ones that a shell understands.
std::string literal_line(std::string_view text) {
  static constexpr std::string_view kAscii = "-'`^~";
  static constexpr std::array<std::string_view, kAscii.size()> kEscapes{"\\-", "\\(aq", "\\(ga", "\\(ha", "\\(ti"};
  std::string result = text.starts_with('.') ? "\\&" : "";
  for (const char c : text) {
    const std::size_t at = kAscii.find(c);
    result += at == std::string_view::npos ? escape(std::string_view(&c, 1)) : std::string(kEscapes[at]);
  }
  return result + "\n";
}

// Paragraphs, one sentence a line as mdoc wants them. Lines that begin with four spaces are a snippet.
std::string prose(std::string_view text) {
  constexpr std::string_view kIndent = "    ";
  std::string result;
  bool blank = false, literal = false;
  std::string line;
  const auto flush = [&] {
    if (line.empty()) return;
    if (blank) result += ".Pp\n";
    blank = false;
    result += text_line(line);
    line.clear();
  };
  for (std::size_t at = 0, end = 0; at <= text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string source(text.substr(at, end - at));
    if (const bool begins = source.starts_with(kIndent); begins != literal) {
      flush();
      result += begins ? ".Bd -literal -offset 2n\n" : ".Ed\n";
      literal = begins;
      blank = false;
    }
    if (literal) {
      result += literal_line(std::string_view(source).substr(kIndent.size()));
      continue;
    }
    if (source.empty()) {
      flush();
      blank = !result.empty();
      continue;
    }
    for (const std::string& word : wrap(source, 0)) {  // width 0: single words
      line += (line.empty() ? "" : " ") + word;
      if (word.ends_with('.') || word.ends_with(':') || line.size() > 100) flush();
    }
  }
  flush();
  if (literal) result += ".Ed\n";
  return result;
}

std::string upper(std::string_view text) {
  std::string result;
  for (const char c : text) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

// One argument of a macro: quoted, so that blanks, punctuation and names of macros in it mean nothing.
std::string argument(std::string_view text) {
  std::string result = "\"\\&";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : escape(std::string_view(&c, 1));
  return result + "\"";
}

std::string header(std::string_view name, int section, std::string_view summary) {
  return fmt::format(".Dd {}\n.Dt {} {}\n.Os ms {}\n.Sh NAME\n.Nm {}\n.Nd {}\n", kReleaseDate, upper(name), section,
                     kVersion, name, escape(summary));
}

std::string positional_macro(const Positional& p) {
  const std::string macro = fmt::format("Ar {}{}", argument(p.name), p.many ? " ..." : "");
  return p.required ? "." + macro + "\n" : ".Op " + macro + "\n";
}

std::string option_macro(const Option& option) {
  // "Fl -name" prints --name.
  std::string macro = option.letter ? fmt::format("Fl {} , ", option.letter) : "";
  macro += "Fl -" + option.name;
  if (!option.value.empty()) macro += " Ar " + argument(option.value);
  return macro;
}

std::string synopsis_of(const Command& command) {
  std::string text = fmt::format(".Nm\n.Cm {}\n", command.name);
  for (const Option& option : command.options) {
    const std::string value = option.value.empty() ? "" : " Ar " + argument(option.value);
    const std::string_view macro = option.required ? ".Fl" : ".Op Fl";
    text += fmt::format("{} -{}{}{}\n", macro, option.name, value, option.many ? " ..." : "");
  }
  for (const Positional& positional : command.positionals) text += positional_macro(positional);
  return text;
}

std::string command_of(const Command& command) {
  std::string text = fmt::format(".Ss {}\n", command.name);
  std::string summary = command.summary + ".";
  summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
  text += prose(summary);
  if (!command.description.empty()) text += ".Pp\n" + prose(command.description);
  if (command.positionals.empty() && command.options.empty()) return text;
  text += ".Bl -tag -width Ds\n";
  for (const Positional& positional : command.positionals) {
    text +=
        fmt::format(".It Ar {}{}\n", argument(positional.name), positional.many ? " ..." : "") + prose(positional.doc);
  }
  for (const Option& option : command.options) {
    text += ".It " + option_macro(option) + "\n" + prose(option.doc);
    if (option.many) text += "May be given several times.\n";
    if (!option.default_text.empty()) text += fmt::format("The default is\n.Ql {} .\n", argument(option.default_text));
  }
  return text + ".El\n";
}

std::string exit_status_of(const Tool& tool) {
  std::string text = ".Sh EXIT STATUS\n";
  if (tool.exit_status.empty()) { text += "Job scripts and ms-driver act on the exit status, see\n.Xr ms-exit 7 .\n"; }
  text += ".Bl -tag -width 999\n";
  for (const auto& [code, meaning] : tool.exit_status) text += fmt::format(".It {}\n", code) + prose(meaning);
  if (tool.exit_status.empty()) {
    std::map<int, std::string> meanings;
    for (const ExitCodeRow& row : kExitCodes) meanings[static_cast<int>(row.code)] = row.meaning;
    for (const auto& [code, meaning] : exits_of(tool.name)) meanings[code] = meaning;
    for (const auto& [code, meaning] : meanings) text += fmt::format(".It {}\n", code) + prose(meaning);
  }
  return text + ".El\n";
}

// "ms-ckpt(1)" -> ".Xr ms-ckpt 1", in the order of sections and names that the convention asks for.
std::string see_also(std::vector<std::string> pages) {
  if (pages.empty()) return {};
  std::string text = ".Sh SEE ALSO\n";
  const auto section = [](const std::string& page) { return page.substr(page.find('(')); };
  std::sort(pages.begin(), pages.end(), [&](const std::string& a, const std::string& b) {
    return std::pair(section(a), a) < std::pair(section(b), b);
  });
  for (const std::string& page : pages) {
    const std::size_t open = page.find('(');
    MS_ASSERT(open != std::string::npos && page.ends_with(')'), "'{}' is not the name of a manual page", page);
    text += fmt::format(".Xr {} {}{}\n", page.substr(0, open), page.substr(open + 1, page.size() - open - 2),
                        &page == &pages.back() ? "" : " ,");
  }
  return text;
}

}  // namespace

std::string tool_page(const Tool& tool) {
  std::string text = header(tool.name, 1, tool.summary) + ".Sh SYNOPSIS\n";
  for (const Command& command : tool.commands) text += synopsis_of(command);
  text +=
      ".Nm\n.Fl -help | Fl -version | Fl -man | Fl -completion Ar SHELL | Fl -check Ar COMMAND ...\n.Sh DESCRIPTION\n";
  text += prose(tool.description.empty() ? fmt::format("{}: {}.", tool.name, tool.summary) : tool.description);
  text += ".Sh COMMANDS\n";
  for (const Command& command : tool.commands) text += command_of(command);
  for (const ManSection& section : tool.sections) {
    text += fmt::format(".Sh {}\n.Bl -tag -width Ds\n", argument(upper(section.title)));
    for (const auto& [term, meaning] : section.items)
      text += fmt::format(".It Sy {}\n", argument(term)) + prose(meaning);
    text += ".El\n";
  }
  text +=
      ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n.It Ev MS_LOG\nFilter of the log on standard error:\na level, then levels "
      "of modules, as in\n.Ql info,comm:debug .\nThe levels are\n.Ql error , warn , info , debug ,\nand\n.Ql ring "
      ",\nwhich is\n.Ql info\nwith debug lines kept in memory and printed if the program fails.\n";
  for (const auto& [name, meaning] : tool.environment) text += fmt::format(".It Ev {}\n", name) + prose(meaning);
  text += ".El\n";
  text += exit_status_of(tool);
  if (!tool.examples.empty()) text += ".Sh EXAMPLES\n";
  for (const Example& example : tool.examples) {
    if (&example != &tool.examples.front()) text += ".Pp\n";
    text += prose(example.doc) + ".Pp\n" + fmt::format(".Dl {}\n", argument(example.command));
  }
  std::vector<std::string> pages = tool.see_also;
  if (tool.exit_status.empty()) pages.push_back("ms-exit(7)");
  return text + see_also(std::move(pages));
}

std::string config_page(const ConfigPage& page, std::span<const ConfigRow> rows) {
  std::string text = header(page.name, 5, page.summary);
  text += ".Sh DESCRIPTION\n" + prose(page.description) + ".Pp\n" +
          prose(
              "The file is TOML. Every key belongs to one of the sections below. An unknown key is an error. Durations "
              "are strings with a unit (30s, 5m, 1h30m, 250ms), or 0. Other numbers without a unit are refused, "
              "because they could mean seconds, minutes, hours or steps. Sizes are strings with a unit (64MiB, 1GB) or "
              "plain bytes. All problems are reported at once, with file, line and column.");
  text += ".Sh KEYS\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ConfigRow& row = rows[i];
    if (i == 0 || rows[i - 1].section != row.section) {
      text += fmt::format(".Ss [{}]\n", escape(row.section)) + prose(row.section_doc) + ".Bl -tag -width Ds\n";
    }
    text += fmt::format(".It Ic {} Pq {}\n", argument(row.key), argument(row.type)) + prose(row.doc);
    if (!row.choices.empty())
      text += prose(
          fmt::format("{} {}.", row.type == "integer" ? "An integer, or" : "One of", fmt::join(row.choices, ", ")));
    if (!row.range.empty()) {
      text += prose(fmt::format("Range: {}{}{}.", row.range, row.unit.empty() ? "" : " ", row.unit));
    }
    text += row.required ? "Required.\n" : fmt::format("The default is\n.Ql {} .\n", argument(row.default_value));
    if (i + 1 == rows.size() || rows[i + 1].section != row.section) text += ".El\n";
  }
  return text + see_also(page.see_also);
}

std::string sample_config(const ConfigPage& page, std::span<const ConfigRow> rows) {
  constexpr std::size_t kWidth = 98;
  const auto comment = [](const std::string& prose) {
    std::string lines;
    for (const std::string& line : wrap(prose, kWidth)) lines += "# " + line + "\n";
    return lines;
  };
  std::string text = comment(
      fmt::format("{}: {}. Every key is shown with its default. To change one, remove its #. {}(5) describes the keys.",
                  page.name, page.summary, page.name));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ConfigRow& row = rows[i];
    if (i == 0 || rows[i - 1].section != row.section) {
      text += fmt::format("\n{}[{}]\n", comment(row.section_doc), row.section);
    }
    std::string doc = row.doc;
    if (!row.choices.empty()) doc += fmt::format(" One of {}.", fmt::join(row.choices, ", "));
    if (!row.range.empty()) doc += fmt::format(" Range: {}{}{}.", row.range, row.unit.empty() ? "" : " ", row.unit);
    text += "\n" + comment(doc) + fmt::format("#{} = {}\n", row.key, row.required ? "..." : row.default_value);
  }
  return text;
}

std::string topic_page(const TopicPage& page) {
  std::string text = header(page.name, 7, page.summary) + ".Sh DESCRIPTION\n" + prose(page.description);
  for (const TopicSection& section : page.sections) {
    text += fmt::format(".Sh {}\n", argument(upper(section.title)));
    if (!section.text.empty()) text += prose(section.text);
    if (section.items.empty()) continue;
    text += ".Bl -tag -width Ds\n";
    for (const TopicItem& item : section.items)
      text += fmt::format(".It Sy {}\n", argument(item.tag)) + prose(item.text);
    text += ".El\n";
  }
  return text + see_also(page.see_also);
}

std::string exit_page() {
  std::string text = header("ms-exit", 7, "exit codes of ms programs");
  text += ".Sh DESCRIPTION\n" +
          prose(
              "Every ms program exits with one of these codes, except ms-diag and ms-netcheck. These two follow the "
              "convention of Nagios plugins: 0, 1, 2 or 3, see below. Job scripts and ms-driver act on the codes, so a "
              "code never changes its meaning. ms-train explain CODE prints the same text.");
  text += ".Bl -tag -width 999\n";
  for (const ExitCodeRow& row : kExitCodes) {
    text += fmt::format(".It {} Pq {}\n", static_cast<int>(row.code), row.name) + prose(row.meaning);
  }
  text += ".El\n.Sh SINGLE PROGRAMS\n.Bl -tag -width Ds\n";
  for (const ToolExitRow& row : tool_exits())
    text += fmt::format(".It Sy {} {}\n", argument(std::string(row.tool)), row.code) + prose(std::string(row.meaning));
  text += ".El\n.Sh KINDS OF ERRORS\n" +
          prose(
              "A run that fails writes run.dir/verdict.json. Its \"kind\" is more specific than the exit code. "
              "ms-train explain KIND prints the same text.") +
          ".Bl -tag -width Ds\n";
  for (const ErrorKindRow& row : error_kinds()) {
    text += fmt::format(".It Sy {}\n", argument(row.kind)) + prose(row.meaning);
  }
  return text + ".El\n" + see_also({"ms-train(1)", "ms-driver(1)"});
}

}  // namespace ms::man
