/*
 * A program of SIZE_MB MiB of code that was built without frame pointers: 2 KiB a function, with call frame information.
 * It works at the end of a stack 20 deep, in the middle of that code, until killed.
 */
	.text
	.rept SIZE_MB * 256
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	push %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	sub $24, %rsp
	.cfi_adjust_cfa_offset 24
	.skip 2000, 0x90
	add $24, %rsp
	.cfi_adjust_cfa_offset -24
	pop %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.balign 16
	.endr

	.globl descend
	.type descend, @function
descend:
	.cfi_startproc
	sub $40, %rsp
	.cfi_adjust_cfa_offset 40
	dec %rdi
	jz 1f
	call descend
1:	jmp 1b
	.cfi_endproc
	.size descend, . - descend

	.rept SIZE_MB * 256
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	.skip 2020, 0x90
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.balign 16
	.endr

	.globl main
	.type main, @function
main:
	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	mov $20, %rdi
	call descend
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size main, . - main
	.section .note.GNU-stack, "", @progbits
