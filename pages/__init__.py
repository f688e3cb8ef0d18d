"""What pages are furnished with: sentences, tables, figures, claims."""
