#include "cost/model.h"
#include "cost/second/late.h"
