// Implements NsysSqliteReader of nsys_reader.h, the one file that knows SQLite. A database may be anything: it is
// opened read-only without its journals, only plain columns of plain tables are read, and in a time that is bounded by
// its size.
#include <fmt/format.h>

#include <initializer_list>
#include <memory>

#include "base/error.h"
#include "tracepp/read/nsys_reader.h"
#ifdef MS_SQLITE
#include <sqlite3.h>
#endif

namespace ms::tracepp {

bool is_sqlite(std::string_view beginning, bool) {
  return beginning.starts_with(std::string_view("SQLite format 3\0", 16));
}

#ifndef MS_SQLITE

std::int64_t NsysSqliteReader::read(TextInput& input) {
  throw user_error("trace.sqlite", fmt::format("{} is a SQLite database, and this build has no SQLite", input.path()),
                   "build with libsqlite3-dev, or export with nsys export --type jsonlines");
}

#else

namespace {

class Database {
 public:
  Database(const std::string& path, std::int64_t size_bytes, Problems& problems)
      : problems_(problems), left_(10'000 + size_bytes / kBytesAnOperation / kOperations) {
    std::string uri = "file:";
    for (const char c : path) uri += c == '?' || c == '#' || c == '%' ? fmt::format("%{:02x}", c) : std::string(1, c);
    sqlite3* opened = nullptr;
    const int result =
        sqlite3_open_v2((uri + "?immutable=1").c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    db_.reset(opened);
    if (result != SQLITE_OK) throw user_error("trace.sqlite", fmt::format("{}: {}", path, sqlite3_errmsg(opened)));
    constexpr int kLongestText = 1 << 24;
    sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, kLongestText);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_progress_handler(
        opened, kOperations, [](void* left) { return --*static_cast<std::int64_t*>(left) < 0 ? 1 : 0; }, &left_);
    if (!run("SELECT count(*) FROM sqlite_master", [](sqlite3_stmt*) {})) {
      throw user_error("trace.sqlite", fmt::format("{}: {}", path, sqlite3_errmsg(opened)));
    }
  }

  // handle(row) of each row of a table; a column that the table lacks is null.
  template <class Handle>
  void rows(std::string_view table, std::initializer_list<std::string_view> columns, Handle&& handle) {
    bool is_table = false;
    run(fmt::format("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{}'", table),
        [&](sqlite3_stmt* row) { is_table = text(row, 0).starts_with("CREATE TABLE"); });
    if (!is_table) return;
    std::string list;
    for (const std::string_view column : columns) {
      bool has = false;
      run(fmt::format("SELECT name FROM pragma_table_info('{}')", table),
          [&](sqlite3_stmt* row) { has |= text(row, 0) == column; });
      list += fmt::format("{}{}", list.empty() ? "" : ", ", has ? fmt::format("\"{}\"", column) : "NULL");
    }
    if (!run(fmt::format("SELECT {} FROM \"{}\"", list, table), handle))
      ++problems_["damaged table of a SQLite database"];
  }

  static std::string text(sqlite3_stmt* row, int column) {
    const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
    std::string found(bytes == nullptr ? "" : bytes,
                      bytes == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(row, column)));
    clean_text(found);
    return found;
  }
  static std::int64_t number(sqlite3_stmt* row, int column, std::int64_t otherwise = 0) {
    return sqlite3_column_type(row, column) == SQLITE_INTEGER ? sqlite3_column_int64(row, column) : otherwise;
  }

 private:
  static constexpr int kOperations = 1000;  // between two calls of the progress handler
  static constexpr std::int64_t kBytesAnOperation = 1;
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };

  template <class Handle>
  bool run(const std::string& query, Handle&& handle) {
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(db_.get(), query.c_str(), -1, &prepared, nullptr) != SQLITE_OK) return false;
    const std::unique_ptr<sqlite3_stmt, Finalize> statement(prepared);
    int result = SQLITE_ROW;
    while ((result = sqlite3_step(prepared)) == SQLITE_ROW) handle(prepared);
    return result == SQLITE_DONE;
  }

  Problems& problems_;
  std::int64_t left_;
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace

std::int64_t NsysSqliteReader::read(TextInput& input) {
  if (input.is_packed()) {
    throw user_error("trace.sqlite", input.path() + " is a packed SQLite database", "unpack it first");
  }
  NsysReport report;
  Database db(input.path(), input.size_bytes(), report.problems);
  const auto number = [](sqlite3_stmt* row, int column, std::int64_t otherwise = 0) {
    return Database::number(row, column, otherwise);
  };
  db.rows("StringIds", {"id", "value"},
          [&](sqlite3_stmt* row) { report.strings[number(row, 0)] = Database::text(row, 1); });
  db.rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"},
          [&](sqlite3_stmt* row) { report.begin_ns = number(row, 0); });
  db.rows("TARGET_INFO_SYSTEM_ENV", {"name", "value"}, [&](sqlite3_stmt* row) {
    if (Database::text(row, 0) == "Hostname") report.host = Database::text(row, 1);
  });
  const auto work = [&](sqlite3_stmt* row, NsysEvent::What what, std::int64_t name) {
    report.events.push_back({.what = what,
                             .begin_ns = number(row, 0),
                             .end_ns = number(row, 1),
                             .thread = number(row, 2),
                             .name = name,
                             .correlation = number(row, 3, -1),
                             .device = number(row, 4),
                             .stream = number(row, 5)});
  };
  db.rows("CUPTI_ACTIVITY_KIND_KERNEL",
          {"start", "end", "globalPid", "correlationId", "deviceId", "streamId", "demangledName", "shortName"},
          [&](sqlite3_stmt* row) { work(row, NsysEvent::What::kernel, number(row, 6, number(row, 7))); });
  db.rows("CUPTI_ACTIVITY_KIND_MEMCPY",
          {"start", "end", "globalPid", "correlationId", "deviceId", "streamId", "copyKind", "srcKind", "dstKind"},
          [&](sqlite3_stmt* row) {
            work(row, NsysEvent::What::copy,
                 report.named(nsys_copy_name(number(row, 6), number(row, 7, -1), number(row, 8, -1))));
          });
  db.rows("CUPTI_ACTIVITY_KIND_MEMSET", {"start", "end", "globalPid", "correlationId", "deviceId", "streamId"},
          [&](sqlite3_stmt* row) { work(row, NsysEvent::What::set, 0); });
  db.rows("CUPTI_ACTIVITY_KIND_RUNTIME",
          {"start", "end", "globalTid", "correlationId", "deviceId", "streamId", "nameId"},
          [&](sqlite3_stmt* row) { work(row, NsysEvent::What::call, number(row, 6)); });
  db.rows("NVTX_EVENTS", {"start", "end", "globalTid", "eventType", "text", "textId"}, [&](sqlite3_stmt* row) {
    constexpr std::int64_t kPushPop = 59, kStartEnd = 60;
    const std::int64_t type = number(row, 3, kPushPop);
    if ((type != kPushPop && type != kStartEnd) || number(row, 1) <= 0) return;
    const std::string text = Database::text(row, 4);
    report.events.push_back({.what = NsysEvent::What::range,
                             .begin_ns = number(row, 0),
                             .end_ns = number(row, 1),
                             .thread = number(row, 2),
                             .name = text.empty() ? number(row, 5) : report.named(text)});
  });
  add(report, input.path());
  return 0;
}

#endif

}  // namespace ms::tracepp
