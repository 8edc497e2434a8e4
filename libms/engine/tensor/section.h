// A section of a stream in traces: everything issued to the stream during this object's lifetime is one event of its
// rank. Sections do not nest.
#pragma once

#include "tensor/stream.h"

namespace ms::tensor {

class Section {
 public:
  Section(Stream& stream, trace::Kind kind) : stream_(stream) {
    if (trace::Recorder* recorder = stream.device().recorder()) ticket_ = recorder->issue(kind);
    stream_.begin_section(ticket_);
  }
  ~Section() { stream_.end_section(ticket_); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  Stream& stream_;
  trace::Ticket ticket_ = trace::kNoTicket;
};

}  // namespace ms::tensor
