// Words and numbers for people: sizes, durations, near names, aligned tables. Pure functions; the configuration and
// command-line tables, the tools' results and the log use them. Parsing is strict: what is not understood is nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms {

// Thirty years: no longer durations are read, so that in nanoseconds, too, they are 64-bit integers.
inline constexpr double kMaxDuration_s = 1e9;
// "30s", "5m", "1h30m", "250ms", "1.5h": numbers with units d h m s ms us ns, each smaller than the one before it.
std::optional<double> parse_duration_s(std::string_view text);
// "64MiB", "1GB", "1.5KiB", "512B": kB (or KB) MB GB TB PB are powers of 1000, KiB .. PiB of 1024. The size must be
// whole.
std::optional<std::int64_t> parse_size_bytes(std::string_view text);

// Rounded, for reading: "250ms", "12.3s", "2m05s", "1h30m", "3d04h"; "64.0 MiB"; "1.23M" (for counts of anything).
std::string format_duration(double seconds);
std::string format_size(double size_bytes);
std::string format_count(double count);

// A text that parses back to exactly this value, with the largest units that do: "1h30m", "64MiB"; nullopt where only
// the plain number is exact.
std::optional<std::string> exact_duration(double seconds);
std::optional<std::string> exact_size(std::int64_t size_bytes);

// Levenshtein distance in bytes, where a swap of two neighbours counts as one.
std::size_t edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `name`, the first of equals; nullopt where none is near enough to be what was meant.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

// "1 mount", "2 mounts", "0 mounts": for words that take an s.
std::string plural(std::size_t number, std::string_view what);

// The line without the colours that programs put around words: ESC [ numbers letter. `kept`: for such a line.
std::string_view without_colours(std::string_view line, std::string& kept);

// At most the first `max` bytes; of these every one that is not printable ASCII becomes '?'.
std::string printable(std::string_view text, std::size_t max);
// One line of printable ASCII, of at most `max` bytes: every other byte becomes '?', blanks in a row become one, those
// at the ends none; a text that was longer ends in "...".
std::string plain_text(std::string_view text, std::size_t max);

std::string_view trim(std::string_view text);
// "a,b" -> {"a", "b"}, parts trimmed; an empty text has no parts.
std::vector<std::string> split(std::string_view text, char separator);
// Breaks at spaces so that no line is longer than `width` unless a single word is.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};
// Makes columns of their titles, as "rank>|queue of|mean>": a column whose title ends in '>' is aligned to the right.
std::vector<Column> columns(std::string_view titles);

// Aligned columns for terminals: two spaces between columns, no trailing blanks, a line of titles first. Each title and
// cell is a safe_line() of escape.h.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns);
  void row(std::vector<std::string> cells);  // as many cells as columns
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ms
