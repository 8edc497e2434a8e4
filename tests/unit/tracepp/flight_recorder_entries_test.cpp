// The entries of a Flight Recorder dump together: batches, ends, begins, losses.
#include "tracepp/read/flight_recorder_entries.h"

#include <gmock/gmock.h>

namespace ms::tracepp {
namespace {

// An entry as NCCL's recorder writes it.
RecorderEntry entry_of(const std::string& name, const std::string& state, std::int64_t sequence, std::int64_t p2p) {
  RecorderEntry entry;
  entry.operation = "nccl:" + name;
  entry.group = "0";
  entry.group_id = 0;
  entry.state = state;
  entry.sequence = sequence;
  entry.p2p_sequence = p2p;
  entry.is_retired = state == "completed";
  if (state != "scheduled") entry.started_ns = 5;
  if (state == "completed") entry.completed_ns = 9;
  if (!name.ends_with("coalesced")) entry.input_sizes = "[[8]]";
  return entry;
}

std::vector<std::string> told(const std::vector<RecorderEntry>& entries) {
  std::vector<std::string> text;
  for (const RecorderEntry& it : entries) text.push_back(it.operation.substr(5) + " " + it.state);
  return text;
}

TEST(RecorderEntries, ABatchHasTheStateOfTheEntryThatClosesIt) {
  struct BatchRow {
    const char* what;
    std::vector<RecorderEntry> entries;
    std::vector<std::string> folded;
  };
  const auto of = entry_of;
  const BatchRow rows[] = {
      {"a batch of transfers, whose closing entry repeats the number of the collective",
       {of("all_reduce", "completed", 1, 0), of("send 0->1", "scheduled", 1, 1), of("recv 0<-1", "scheduled", 1, 1),
        of("coalesced", "started", 1, 1)},
       {"all_reduce completed", "send 0->1 started", "recv 0<-1 started"}},
      {"a transfer of its own, and a batch behind it",
       {of("send 0->1", "scheduled", 0, 1), of("recv 0<-1", "scheduled", 0, 2), of("coalesced", "completed", 0, 2)},
       {"send 0->1 scheduled", "recv 0<-1 completed"}},
      {"a batch that is not closed yet", {of("send 0->1", "scheduled", 0, 1)}, {"send 0->1 scheduled"}},
      {"collectives of one kind",
       {of("_all_gather_base", "scheduled", 1, 0), of("_all_gather_base", "scheduled", 1, 0),
        of("coalesced", "completed", 1, 0)},
       {"_all_gather_base completed"}},
      {"collectives of several kinds",
       {of("all_reduce", "scheduled", 1, 0), of("broadcast", "scheduled", 1, 0), of("coalesced", "started", 1, 0)},
       {"coalesced started"}},
      {"broadcasts in place of an all-gather",
       {of("_broadcast_oop", "scheduled", 1, 0), of("_broadcast_oop", "scheduled", 1, 0),
        of("ALLGATHER_coalesced", "started", 1, 0)},
       {"_broadcast_oop started"}},
      {"as older versions write them, without the calls",
       {of("coalesced", "completed", 1, 0), of("all_reduce", "scheduled", 2, 0)},
       {"coalesced completed", "all_reduce scheduled"}},
  };
  for (const BatchRow& row : rows) {
    std::vector<RecorderEntry> entries = row.entries;
    fold_batches(entries);
    EXPECT_EQ(told(entries), row.folded) << row.what;
  }
  std::vector<RecorderEntry> alone{of("all_reduce", "completed", 1, 0), of("coalesced", "started", 1, 1)};
  fold_batches(alone);
  EXPECT_TRUE(alone[1].is_p2p);  // no collective has its number
  std::vector<RecorderEntry> merged = rows[3].entries;
  fold_batches(merged);
  EXPECT_EQ(merged[0].input_sizes, "[[8]][[8]]");
}

TEST(RecorderEntries, EachBackendTellsByItselfWhatEndedAndBegan) {
  const auto of = entry_of;
  RecorderEntry gloo = of("barrier", "scheduled", 1, 0);
  gloo.operation = "gloo:barrier";
  RecorderEntry retired = gloo;
  retired.is_retired = true;
  std::vector<RecorderEntry> entries{of("all_reduce", "completed", 1, 0), retired, gloo,
                                     of("all_reduce", "scheduled", 2, 0), of("all_reduce", "scheduled", 3, 0)};
  EXPECT_TRUE(find_ended(entries, {}));
  find_begun(entries);
  EXPECT_THAT(told(entries), testing::ElementsAre("all_reduce completed", "barrier completed", "barrier started",
                                                  "all_reduce scheduled", "all_reduce scheduled"));
  // Without its timing option NCCL does not show what began: the first that did not end, with its batch.
  std::vector<RecorderEntry> untimed{of("all_reduce", "completed", 1, 0), of("send 0->1", "scheduled", 1, 1),
                                     of("recv 0<-1", "scheduled", 1, 1), of("coalesced", "scheduled", 1, 1),
                                     of("all_reduce", "scheduled", 2, 1)};
  untimed[0].started_ns = 0;
  fold_batches(untimed);
  EXPECT_FALSE(find_ended(untimed, {}));
  find_begun(untimed);
  EXPECT_THAT(told(untimed), testing::ElementsAre("all_reduce completed", "send 0->1 started", "recv 0<-1 started",
                                                  "all_reduce scheduled"));
}

TEST(RecorderEntries, TheLastEntryOfACutDumpMayBeUnfinished) {
  const auto left = [](std::string_view state, const std::string& last_field) {
    std::vector<RecorderEntry> entries(2, entry_of("all_reduce", "completed", 1, 0));
    entries[0].last_field = "is_p2p";
    entries[1].last_field = last_field;
    entries[1].state = state;
    drop_unfinished(entries);
    return entries.size();
  };
  EXPECT_EQ(left("completed", "is_p2p"), 2U);
  EXPECT_EQ(left("started", "is_p2p"), 2U);  // it may lack the fields of its end
  EXPECT_EQ(left("completed", "retired"), 1U);
  EXPECT_EQ(left("", "is_p2p"), 1U);
  std::vector<RecorderEntry> none;
  drop_unfinished(none);
  EXPECT_TRUE(none.empty());
}

TEST(RecorderEntries, ADumpThatLacksEntriesHasNumbersInItsStatus) {
  const auto of = [](std::int64_t record, std::int64_t sequence) {
    RecorderEntry entry = entry_of("all_reduce", "completed", sequence, 0);
    entry.record = record;
    return entry;
  };
  const RecorderStatuses statuses{{0, {.enqueued = 7, .completed = 7}}, {1, {.enqueued = 5, .completed = 4}}};
  EXPECT_FALSE(lacks_entries({}, {}, false));
  EXPECT_TRUE(lacks_entries({}, statuses, false));
  EXPECT_FALSE(lacks_entries({of(0, 1), of(1, 2)}, statuses, false));
  EXPECT_TRUE(lacks_entries({of(1, 2), of(2, 3)}, statuses, false));    // the buffer was full
  EXPECT_TRUE(lacks_entries({of(0, 1), of(2, 3)}, statuses, false));    // those that did not end
  EXPECT_TRUE(lacks_entries({of(0, 12), of(1, 13)}, statuses, false));  // the recorder was reset
  EXPECT_FALSE(lacks_entries({of(-1, 1), of(-1, 2)}, statuses, false));
  EXPECT_FALSE(lacks_entries({of(0, 0), of(1, 1)}, statuses, true));
  EXPECT_TRUE(lacks_entries({of(0, 12), of(1, 13)}, statuses, true));

  // The batch of records 0 and 1 ended, as what closed it is left out; that of record 3 may not have.
  std::vector<RecorderEntry> active;
  for (const std::int64_t record : {0, 1, 3}) {
    active.push_back(entry_of("send 0->1", "scheduled", 0, record / 2 + 1));
    active.back().record = record;
  }
  end_unlisted(active, {});
  EXPECT_THAT(told(active), testing::ElementsAre("send 0->1 completed", "send 0->1 completed", "send 0->1 scheduled"));
  end_unlisted(active, {{0, {.enqueued = 2, .completed = 2}}});
  EXPECT_EQ(active[2].state, "scheduled");  // a dump with what ended has what closes batches
  active.resize(1);
  active[0].state = "scheduled";
  end_unlisted(active, {{0, {.enqueued = 1, .completed = 1}}});
  EXPECT_EQ(active[0].state, "completed");

  using Newest = std::map<std::string, std::int64_t>;
  EXPECT_EQ(newest_numbers({}, statuses, {"10", "0"}), (Newest{{"0", 7}, {"10", 5}}));  // ids in the order of names
  EXPECT_EQ(newest_numbers({of(1, 2)}, statuses, {"tp", "0"}), (Newest{{"0", 7}}));     // names tell no order
  RecorderEntry other = of(1, 2);
  other.group_id = 1;  // group "0" has id 1
  EXPECT_EQ(newest_numbers({other}, statuses, {"10", "0"}), (Newest{{"0", 5}}));
  EXPECT_EQ(newest_numbers({entry_of("send 0->1", "completed", 0, 1)}, statuses, {"10", "0"}), (Newest{{"10", 5}}));
}

}  // namespace
}  // namespace ms::tracepp
