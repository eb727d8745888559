// SPDX-License-Identifier: Apache-2.0

package modestest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
)

// Library is the smallest shared library of this machine: a page of code that returns.
func Library() []byte {
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	const header, segment = 64, 56
	var out bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
			Phoff: header, Ehsize: header, Phentsize: segment, Phnum: 1,
		},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 4096, Memsz: 4096, Align: 4096},
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			panic(err) // a buffer takes everything
		}
	}
	return append(out.Bytes(), bytes.Repeat([]byte{0xc3}, 4096-out.Len())...)
}
