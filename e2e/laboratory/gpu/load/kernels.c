/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c: the kernels, as PTX that every driver since CUDA 11.0 compiles for its card (sm_70 and later).
 * Their names say how long a fake driver shall keep its device busy with one; on a card they take what
 * their work takes.
 *
 *   work_1us    nothing
 *   work_20us   `rounds` rounds of 8 dependent multiplications; stores only what cannot come out (over a million)
 *   work_130us, work_7us   adds 1 to each of `count` floats, a thread each
 */
#include "load.h"

#define ADD_ONE(name)                                              \
	".visible .entry " name "(.param .u64 array, .param .u32 count)\n" \
	"{\n"                                                      \
	".reg .pred %outside;\n"                                   \
	".reg .b32 %n, %block, %threads, %thread, %at;\n"          \
	".reg .f32 %value;\n"                                      \
	".reg .b64 %address, %offset;\n"                           \
	"ld.param.u64 %address, [array];\n"                        \
	"ld.param.u32 %n, [count];\n"                              \
	"mov.u32 %block, %ctaid.x;\n"                              \
	"mov.u32 %threads, %ntid.x;\n"                             \
	"mov.u32 %thread, %tid.x;\n"                               \
	"mad.lo.u32 %at, %block, %threads, %thread;\n"             \
	"setp.ge.u32 %outside, %at, %n;\n"                         \
	"@%outside bra finished;\n"                                \
	"cvta.to.global.u64 %address, %address;\n"                 \
	"mul.wide.u32 %offset, %at, 4;\n"                          \
	"add.s64 %address, %address, %offset;\n"                   \
	"ld.global.f32 %value, [%address];\n"                      \
	"add.rn.f32 %value, %value, 0f3F800000;\n"                 \
	"st.global.f32 [%address], %value;\n"                      \
	"finished:\n"                                              \
	"ret;\n"                                                   \
	"}\n"

#define MULTIPLY "fma.rn.f32 %value, %value, %factor, %factor;\n"

const char load_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry work_1us()\n"
	"{\n"
	"ret;\n"
	"}\n"
	".visible .entry work_20us(.param .u64 array, .param .u32 rounds)\n"
	"{\n"
	".reg .pred %over, %never;\n"
	".reg .b32 %n, %done, %thread;\n"
	".reg .f32 %value, %factor;\n"
	".reg .b64 %address;\n"
	"ld.param.u64 %address, [array];\n"
	"ld.param.u32 %n, [rounds];\n"
	"mov.u32 %done, 0;\n"
	"mov.u32 %thread, %tid.x;\n"
	"cvt.rn.f32.u32 %value, %thread;\n" /* not a constant, or the compiler does the work instead */
	"mov.f32 %factor, 0f3F000000;\n"
	"again:\n"
	"setp.ge.u32 %over, %done, %n;\n"
	"@%over bra finished;\n"
	MULTIPLY MULTIPLY MULTIPLY MULTIPLY MULTIPLY MULTIPLY MULTIPLY MULTIPLY
	"add.u32 %done, %done, 1;\n"
	"bra again;\n"
	"finished:\n"
	"setp.gt.f32 %never, %value, 0f49742400;\n"
	"cvta.to.global.u64 %address, %address;\n"
	"@%never st.global.f32 [%address], %value;\n"
	"ret;\n"
	"}\n"
	ADD_ONE("work_130us")
	ADD_ONE("work_7us");
