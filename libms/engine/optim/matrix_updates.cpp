#include "optim/matrix_updates.h"

#include <algorithm>
#include <cstring>

namespace ms::optim {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// Returns the elements that begin at a row of a buffer, flat.
Tensor elements_at(const Tensor& rows, std::int64_t first, std::int64_t count) {
  return rows.slice_rows(first, Exchange::rows_for(count)).flat().slice_cols(0, count);
}

}  // namespace

MatrixPlace place_in(const Groups& groups) {
  const comm::Communicator& dp = groups.dp.workers();
  // Experts that no other rank of a shard group holds are not shared.
  const bool shared = groups.edp && (!groups.dp.gathers() || groups.edp->shard != nullptr);
  return {.dp = dp.size(),
          .dp_rank = dp.rank(),
          .edp = shared ? groups.edp->workers().size() : 1,
          .edp_rank = shared ? groups.edp->workers().rank() : 0,
          .tp = groups.tp.size(),
          .tp_rank = groups.tp.rank()};
}

MatrixMemory carve_matrices(Arena& arena, const MatrixLayout& layout) {
  MatrixMemory memory;
  if (layout.groups.empty()) return memory;
  const auto rows = [&](std::int64_t count) { return arena.take(DType::bf16, count, Exchange::kRow); };
  const auto offsets = [&](std::int64_t members) { return arena.take(DType::i32, members, members + 1); };
  for (const MatrixGroup& group : layout.groups) {
    MatrixMemory::Group& taken = memory.groups.emplace_back();
    taken.sent = rows(group.between_replicas.rows);
    if (!group.broadcasts) taken.offsets = offsets(group.replicas);
    if (group.tp > 1) taken.over_tp = rows(group.over_tp.rows), taken.over_tp_offsets = offsets(group.tp);
    // Both exchanges receive here: what the first one brings is in `over_tp` by then.
    const std::int64_t first = group.broadcasts ? 0 : group.between_replicas.rows;
    const std::int64_t second = group.tp > 1 ? group.over_tp.rows : 0;
    if (std::max(first, second) > 0) taken.received = rows(std::max(first, second));
  }
  if (!layout.in_place()) memory.whole = arena.take(DType::bf16, 1, layout.most_elements);
  memory.scratch = carve_matrix_scratch(arena, layout.most_elements, layout.longest_short_side);
  return memory;
}

MatrixUpdates::MatrixUpdates(MatrixLayout layout, MatrixMemory memory, Stream& compute, const Groups& groups)
    : layout_(std::move(layout)), memory_(std::move(memory)), compute_(compute), groups_(groups) {
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
    const MatrixGroup& group = layout_.groups[g];
    if (!group.broadcasts) upload(memory_.groups[g].offsets, group.between_replicas.offsets);
    if (group.tp > 1) upload(memory_.groups[g].over_tp_offsets, group.over_tp.offsets);
  }
}

void MatrixUpdates::upload(const Tensor& to, const std::vector<std::int32_t>& offsets) {
  const auto memory = compute_.device().allocate_host(offsets.size() * sizeof(std::int32_t), "rows of matrices");
  std::memcpy(memory->data(), offsets.data(), offsets.size() * sizeof(std::int32_t));
  compute_.submit(Copy{to, {memory->data(), to.rows, to.cols, to.cols, DType::i32}});
  compute_.copy_to_host(to);
  compute_.synchronize();
}

// Calls each(matrix, its elements that this rank updates, bf16 [1,n] of them in what is sent).
template <class Each>
void MatrixUpdates::each_piece(Each&& each) const {
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
    const MatrixGroup& group = layout_.groups[g];
    for (std::size_t i = 0; i < group.matrices.size(); ++i) {
      const mesh::Range piece = group.matrices[i].piece(group.replica);
      if (piece.empty()) continue;
      each(group.matrices[i], piece, elements_at(memory_.groups[g].sent, group.between_replicas.sent[i], piece.size()));
    }
  }
}

void MatrixUpdates::issue(const UpdateOf& update_of) {
  each_piece([&](const OwnedMatrix& matrix, const mesh::Range& piece, const Tensor& direction) {
    issue_momentum(compute_, update_of(matrix.span, matrix.param, piece), direction);
  });
  to_owners();
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) orthogonalize_owned(g);
  from_owners();
  each_piece([&](const OwnedMatrix& matrix, const mesh::Range& piece, const Tensor& direction) {
    issue_muon_step(compute_, update_of(matrix.span, matrix.param, piece), direction, matrix.cut.rows, matrix.cut.cols);
  });
}

// Returns what has come from the replicas.
Tensor MatrixUpdates::received(std::size_t index) const {
  const MatrixGroup& group = layout_.groups[index];
  const MatrixMemory::Group& memory = memory_.groups[index];
  if (!group.broadcasts) return memory.received.slice_rows(0, group.between_replicas.rows);
  const std::int32_t* mine = group.between_replicas.offsets.data() + group.replica;
  return memory.sent.slice_rows(mine[0], mine[1] - mine[0]);
}

void MatrixUpdates::to_owners() {
  const Event ready = compute_.record();
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
    const MatrixGroup& group = layout_.groups[g];
    if (group.broadcasts) continue;
    comm::Communicator& comm = replicas(group);
    comm.stream().wait(ready);
    comm.all_to_all(received(g), memory_.groups[g].sent, memory_.groups[g].offsets, false);
  }
  for (const MatrixGroup& group : layout_.groups) compute_.wait(replicas(group).stream().record());
}

void MatrixUpdates::from_owners() {
  const Event ready = compute_.record();
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
    const MatrixGroup& group = layout_.groups[g];
    const Tensor& sent = memory_.groups[g].sent;
    comm::Communicator& comm = replicas(group);
    if (group.replicas == 1) continue;
    comm.stream().wait(ready);
    if (!group.broadcasts) {
      comm.all_to_all(sent, received(g), memory_.groups[g].offsets, true);
      continue;
    }
    const std::vector<std::int32_t>& offsets = group.between_replicas.offsets;
    for (int owner = 0; owner < group.replicas; ++owner) {
      const std::int32_t* rows = offsets.data() + owner;
      if (rows[1] > rows[0]) comm.broadcast(sent.slice_rows(rows[0], rows[1] - rows[0]), owner);
    }
  }
  for (const MatrixGroup& group : layout_.groups) compute_.wait(replicas(group).stream().record());
}

// Puts together what this replica owns, or takes it apart.
void MatrixUpdates::copy_pieces(std::size_t index, std::size_t i, const Tensor& shard, bool goes_back) {
  const MatrixGroup& group = layout_.groups[index];
  const OwnedMatrix& matrix = group.matrices[i];
  for (const Exchange::Arrival& arrival : group.between_replicas.received[i]) {
    const mesh::Range piece = matrix.piece(arrival.from);
    const Tensor part = elements_at(received(index), arrival.row, piece.size());
    const Tensor in_shard = shard.slice_cols(piece.begin - matrix.elements.begin, piece.size());
    compute_.submit(goes_back ? Copy{part, in_shard} : Copy{in_shard, part});
  }
}

void MatrixUpdates::copy_shards(std::size_t index, std::size_t i, const Tensor& whole, bool goes_back) {
  const MatrixGroup& group = layout_.groups[index];
  const MatrixCut& cut = group.matrices[i].cut;
  const std::int64_t rows = cut.shard_rows(), cols = cut.shard_cols();
  for (const Exchange::Arrival& arrival : group.over_tp.received[i]) {
    const Tensor shard = elements_at(memory_.groups[index].received, arrival.row, rows * cols).reshape(rows, cols);
    const int place = cut.shards == 1 ? 0 : arrival.from;
    const Tensor in_whole = cut.by_cols ? whole.slice_cols(place * cols, cols) : whole.slice_rows(place * rows, rows);
    compute_.submit(goes_back ? Copy{shard, in_whole} : Copy{in_whole, shard});
  }
}

void MatrixUpdates::over_tp(std::size_t index, bool goes_back) {
  const MatrixMemory::Group& memory = memory_.groups[index];
  const Tensor owned = memory.received.slice_rows(0, memory.over_tp.rows);
  groups_.tp.stream().wait(compute_.record());
  groups_.tp.all_to_all(goes_back ? memory.over_tp : owned, goes_back ? owned : memory.over_tp, memory.over_tp_offsets,
                        goes_back);
  compute_.wait(groups_.tp.stream().record());
}

void MatrixUpdates::orthogonalize_owned(std::size_t index) {
  const MatrixGroup& group = layout_.groups[index];
  const MatrixMemory::Group& memory = memory_.groups[index];
  const auto whole = [&](const MatrixCut& cut) {
    return memory_.whole.slice_cols(0, cut.rows * cut.cols).reshape(cut.rows, cut.cols);
  };
  const auto shard = [&](std::size_t i) {
    return elements_at(memory.over_tp, group.over_tp.sent[i], group.matrices[i].elements.size());
  };
  const auto each_owned = [&](const std::vector<std::vector<Exchange::Arrival>>& received, auto&& each) {
    for (std::size_t i = 0; i < group.matrices.size(); ++i)
      if (!received[i].empty()) each(i, group.matrices[i].cut);
  };
  const auto& from_replicas = group.between_replicas.received;
  if (group.tp == 1) {
    each_owned(from_replicas, [&](std::size_t i, const MatrixCut& cut) {
      if (from_replicas[i].size() == 1) {  // it has come in one piece
        const Tensor x = elements_at(received(index), from_replicas[i].front().row, cut.rows * cut.cols);
        return orthogonalize(compute_, x.reshape(cut.rows, cut.cols), memory_.scratch);
      }
      const Tensor x = whole(cut);
      copy_pieces(index, i, x.flat(), false);
      orthogonalize(compute_, x, memory_.scratch);
      copy_pieces(index, i, x.flat(), true);
    });
    return;
  }
  each_owned(from_replicas, [&](std::size_t i, const MatrixCut&) { copy_pieces(index, i, shard(i), false); });
  over_tp(index, false);
  each_owned(group.over_tp.received, [&](std::size_t i, const MatrixCut& cut) {
    const Tensor x = whole(cut);
    copy_shards(index, i, x, false);
    orthogonalize(compute_, x, memory_.scratch);
    copy_shards(index, i, x, true);
  });
  over_tp(index, true);
  each_owned(from_replicas, [&](std::size_t i, const MatrixCut&) { copy_pieces(index, i, shard(i), true); });
}

}  // namespace ms::optim
